"""placeholder family being written"""

from opspecs.model import OpSpec

SPECS: tuple[OpSpec, ...] = ()
