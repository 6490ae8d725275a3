/* Of cuDNN: its version, one engine without notes for each operation, and where the weights of a recurrent network lie. */
#include "standin.h"
#include "device.h"
#include <stdlib.h>
#include <string.h>

size_t cudnnGetVersion(void) { return CUDNN_VERSION; }
size_t cudnnGetCudartVersion(void) { return RUNTIME_VERSION; }
int cudnnGetProperty(int which, int *value) { *value = which == 0 ? CUDNN_VERSION / 10000 : which == 1 ? CUDNN_VERSION / 100 % 100 : CUDNN_VERSION % 100; return 0; }

int cudnnBackendCreateDescriptor(int kind, void **descriptor) { *descriptor = calloc(1, 512); return 0; }
int cudnnBackendDestroyDescriptor(void *descriptor) { free(descriptor); return 0; }
int cudnnBackendSetAttribute(void *descriptor, int name, int type, int64_t count, const void *elements) { return 0; }
int cudnnBackendFinalize(void *descriptor) { return 0; }
/* An engine has no knobs (302), no notes and no layouts (1302 to 1305); whatever else is asked for is there once, and zero. */
int cudnnBackendGetAttribute(void *descriptor, int name, int type, int64_t asked, int64_t *count, void *elements) {
    int there = name != 302 && (name < 1302 || name > 1305);
    if (count) *count = there;
    if (elements && asked > 0 && there && type == 3) *(int64_t *)elements = 0;
    if (elements && asked > 0 && there && type == 23) *(int32_t *)elements = 0;
    return 0;
}

/* For each layer and direction the matrices of all gates, of the input first; behind those of all layers the biases. */
struct rnn { int gates, bias, directions, size, input, hidden, projected, layers; };
struct tensor { int dims, dim[3]; };

/* Elements before a matrix of a layer; with the number of layers, of all matrices. */
static long offset(const struct rnn *r, int layer, int id) {
    int own = r->projected && r->projected != r->hidden, out = own ? r->projected : r->hidden;
    long sum = 0, hidden = r->hidden;
    for (int l = 0; l < layer; l++) {
        int in = l < r->directions ? r->input : out * r->directions;
        sum += r->gates * hidden * (in + out) + (own ? hidden * out : 0);
    }
    int in = layer < r->directions ? r->input : out * r->directions;
    for (int i = 0; i < id; i++) sum += i < r->gates ? hidden * in : hidden * out;
    return sum;
}
int cudnnSetRNNDescriptor_v8(struct rnn *r, int algorithm, int cell, int bias, int direction, int input_mode, int type, int math, int math_type, int input, int hidden, int projected, int layers, void *dropout, unsigned flags) {
    *r = (struct rnn){cell == 2 ? 4 : cell == 3 ? 3 : 1, bias != 0, 1 + (direction == 1), type == 1 ? 8 : type == 0 ? 4 : 2, input, hidden, projected, layers};
    return 0;
}
int cudnnGetRNNWeightSpaceSize(void *handle, const struct rnn *r, size_t *size) {
    int layers = r->layers * r->directions;
    *size = r->size * (offset(r, layers, 0) + (r->bias ? 2l * r->gates * r->hidden * layers : 0));
    return 0;
}
int cudnnGetRNNWeightParams(void *handle, const struct rnn *r, int layer, size_t size, char *weights, int id, struct tensor *matrix, void **matrix_at, struct tensor *bias, void **bias_at) {
    int own = r->projected && r->projected != r->hidden, back = own ? r->projected : r->hidden;
    int in = layer < r->directions ? r->input : back * r->directions;
    if (matrix) *matrix = (struct tensor){0};
    if (bias) *bias = (struct tensor){0};
    if (matrix_at) *matrix_at = NULL;
    if (bias_at) *bias_at = NULL;
    if (id < 2 * r->gates || own) {
        int projects = id == 2 * r->gates;
        if (matrix) *matrix = (struct tensor){3, {1, projects ? r->projected : r->hidden, projects ? r->hidden : id < r->gates ? in : back}};
        if (matrix_at) *matrix_at = weights + r->size * offset(r, layer, id);
    }
    if (id < 2 * r->gates && r->bias) {
        if (bias) *bias = (struct tensor){3, {1, r->hidden, 1}};
        if (bias_at) *bias_at = weights + r->size * (offset(r, r->layers * r->directions, 0) + (long)(layer * 2 * r->gates + id) * r->hidden);
    }
    return 0;
}
int cudnnGetTensorNdDescriptor(const struct tensor *t, int most, int *type, int *dims, int *dim, int *stride) {
    *type = 0, *dims = t->dims;
    for (int i = 0; i < t->dims && i < most; i++) dim[i] = t->dim[i], stride[i] = 1;
    return 0;
}
