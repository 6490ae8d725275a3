/* A cuDNN of three engines, of which it refuses number 1 and calls number 2 nondeterministic; FAKE_CUDNN chooses what it does
   otherwise. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
typedef struct { int kind, index, crash; } descriptor;
static int fake(const char *word) { const char *is = getenv("FAKE_CUDNN"); return is && !strcmp(is, word); }
__attribute__((destructor)) static void unload(void) { if (fake("unloads")) abort(); }
size_t cudnnGetVersion(void) { puts("noise"); return 92800; }
const char *cudnnGetErrorString(int status) { return status == 3000 ? "CUDNN_STATUS_NOT_SUPPORTED" : "CUDNN_STATUS_BAD_PARAM"; }
int cudnnBackendCreateDescriptor(int kind, void **out) {
  descriptor *one = calloc(1, sizeof *one); one->kind = kind; *out = one; return 0;
}
int cudnnBackendDestroyDescriptor(void *one) { free(one); return 0; }
int cudnnBackendSetAttribute(void *to, int name, int type, int64_t count, const void *values) {
  descriptor *one = to;
  if (name == 2702 && fake("old")) return 2000;
  if (name == 2702) one->crash = fake("crash") && strstr(values, "B200") != NULL;
  if (name == 1301) one->index = (int)*(const int64_t *)values;
  if (name == 204) one->crash = (*(descriptor *const *)values)->crash;
  return 0;
}
int cudnnBackendFinalize(void *to) {
  descriptor *one = to;
  if (one->kind == 4 && one->crash) abort();
  return one->kind == 2 && one->index == 1 ? 3000 : 0;
}
int cudnnBackendGetAttribute(void *of, int name, int type, int64_t most, int64_t *count, void *into) {
  descriptor *one = of;
  if (name == 802) { *count = 1; *(int64_t *)into = 3; }
  if (name == 1303) { *count = one->index == 2; if (*count) *(int *)into = 4; }
  if (name == 202) {
    *count = 2;
    for (int64_t place = 0; place < most && place < *count; place++) ((descriptor **)into)[place]->index = place ? 0 : 2;
  }
  if (name == 300) { *count = 1; ((descriptor **)into)[0]->index = one->index; }
  if (name == 1301) { *count = 1; *(int64_t *)into = one->index; }
  return 0;
}
