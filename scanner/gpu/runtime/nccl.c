/* Of NCCL: the version that the build was made for. */
#include "standin.h"
#include "device.h"

int ncclGetVersion(int *version) { *version = NCCL_VERSION; return 0; }
