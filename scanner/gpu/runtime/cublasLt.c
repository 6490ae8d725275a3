/* Of cuBLASLt: its version. */
#include "standin.h"
#include "device.h"

size_t cublasLtGetVersion(void) { return RUNTIME_VERSION * 10; }
