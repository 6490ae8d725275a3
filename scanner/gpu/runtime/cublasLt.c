/* Of cuBLASLt: products with a bias or without negative numbers; what else it adds to a product is not computed. */
#include "products.h"
#include "device.h"

struct product { int compute, scale, ta, tb, epilogue, bias_type, other; const void *bias; };
struct layout { int type, order, count; int64_t rows, columns, leading, stride; };

size_t cublasLtGetVersion(void) { return RUNTIME_VERSION * 10; }

int cublasLtMatmulDescCreate(struct product **p, int compute, int scale) {
    *p = calloc(1, sizeof **p);
    **p = (struct product){.compute = compute, .scale = scale, .epilogue = 1, .bias_type = -1};
    return 0;
}
int cublasLtMatmulDescDestroy(struct product *p) { free(p); return 0; }
int cublasLtMatmulDescSetAttribute(struct product *p, int attribute, const void *from, size_t size) {
    int value = 0;
    memcpy(&value, from, size < sizeof value ? size : sizeof value);
    switch (attribute) {
    case 2: p->other |= value > 1; break; /* where the factors lie: here both can be read */
    case 3: p->ta = value; break;
    case 4: p->tb = value; break;
    case 7: p->epilogue = value; break;
    case 8: memcpy(&p->bias, from, sizeof p->bias); break;
    case 15: case 25: break; /* multiprocessors to use; faster sums of eight bits */
    case 26: p->bias_type = value; break;
    default: p->other = 1;
    }
    return 0;
}
int cublasLtMatrixLayoutCreate(struct layout **l, int type, uint64_t rows, uint64_t columns, int64_t leading) {
    *l = calloc(1, sizeof **l);
    **l = (struct layout){type, 0, 1, (int64_t)rows, (int64_t)columns, leading, 0};
    return 0;
}
int cublasLtMatrixLayoutDestroy(struct layout *l) { free(l); return 0; }
int cublasLtMatrixLayoutSetAttribute(struct layout *l, int attribute, const void *from, size_t size) {
    void *const to[] = {&l->type, &l->order, &l->rows, &l->columns, &l->leading, &l->count, &l->stride};
    if (attribute < 0 || attribute > 6) return 7;
    memcpy(to[attribute], from, attribute < 2 || attribute == 5 ? 4 : 8);
    return 0;
}
/* One way to compute it, without memory to work in. */
int cublasLtMatmulAlgoGetHeuristic(void *h, void *p, void *a, void *b, void *c, void *d, void *preference, int asked, void *ways, int *found) {
    memset(ways, 0, 96);
    *found = 1;
    return 0;
}
static struct matrix at(const char *base, const struct layout *l, int operation, int i) {
    return operand(base + i * l->stride * (int64_t)size_of(l->type), l->type, operation, l->leading);
}
int cublasLtMatmul(void *h, const struct product *p, const void *alpha, const void *a, const struct layout *la, const void *b, const struct layout *lb, const void *beta, const void *c, const struct layout *lc, void *d, const struct layout *ld, const void *algorithm, void *workspace, size_t size, void *stream) {
    int known = p->epilogue == 1 || p->epilogue == 2 || p->epilogue == 4 || p->epilogue == 6;
    if (!known || p->other || la->order || lb->order || lc->order || ld->order) return gpu_note("library", "cublasLtMatmul"), 0;
    const void *bias = p->epilogue & 4 ? p->bias : NULL;
    long k = p->ta ? la->rows : la->columns;
    for (int i = 0; i < ld->count; i++)
        multiply(__func__, ld->rows, ld->columns, k, at(a, la, p->ta, i), at(b, lb, p->tb, i), alpha, beta, p->scale, at(c, lc, 0, i), at(d, ld, 0, i), bias, p->bias_type < 0 ? ld->type : p->bias_type, p->epilogue & 2);
    return 0;
}
