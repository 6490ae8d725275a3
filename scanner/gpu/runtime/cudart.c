/* A stand-in for libcudart.so.13 in the process that is scanned: it owns the memory of a simulated GPU.
 *
 * Memory of the device is a file in memory that this process and the interpreter of kernels map at one address. Each launch
 * goes over a socket to the interpreter and is waited for, so that streams and events have nothing left to do. What CUDA
 * has and this does not is an error that names it, never a guess. NVIDIA's headers are not used: the few structures and
 * numbers of its interface that PyTorch needs are declared here.
 *
 * device.h is generated: the published table of the device (DEVICE_...), and RUNTIME_VERSION.
 */
#define _GNU_SOURCE
#include "standin.h"
#include "device.h"
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define BASE 0x7a0000000000ull
#define KEPT (256ull << 20) /* at its beginning: what is freed there is kept for the next, which costs the system less */
#define INTERPRETERS_OWN (1ull << 30) /* at the end of device memory: variables of modules */
#define ALIGNMENT 512ull
#define GAP 512ull /* behind every allocation at least, so that what is read beyond it is noticed */

enum { IMAGE = 1, FUNCTION, OCCUPANCY, LAUNCH, SYMBOL };
enum { UNKNOWN = 2 };
enum {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INITIALIZATION = 3, INVALID_CONFIGURATION = 9, INVALID_SYMBOL = 13,
    MISSING_CONFIGURATION = 52, INVALID_DEVICE_FUNCTION = 98, INVALID_DEVICE = 101, NO_KERNEL_IMAGE = 209,
    OUT_OF_RESOURCES = 701, COOPERATIVE_TOO_LARGE = 720, LAUNCH_FAILURE = 719, NOT_SUPPORTED = 801,
};
static const struct { int number; const char *name, *text; } ERRORS[] = {
    {SUCCESS, "cudaSuccess", "no error"},
    {INVALID_VALUE, "cudaErrorInvalidValue", "invalid argument"},
    {OUT_OF_MEMORY, "cudaErrorMemoryAllocation", "out of memory"},
    {INITIALIZATION, "cudaErrorInitializationError", "initialization error"},
    {INVALID_CONFIGURATION, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {INVALID_SYMBOL, "cudaErrorInvalidSymbol", "invalid device symbol"},
    {MISSING_CONFIGURATION, "cudaErrorMissingConfiguration", "__global__ function call is not configured"},
    {INVALID_DEVICE_FUNCTION, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {INVALID_DEVICE, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {NO_KERNEL_IMAGE, "cudaErrorNoKernelImageForDevice", "no kernel image is available for execution on the device"},
    {OUT_OF_RESOURCES, "cudaErrorLaunchOutOfResources", "too many resources requested for launch"},
    {COOPERATIVE_TOO_LARGE, "cudaErrorCooperativeLaunchTooLarge", "too many blocks in cooperative launch"},
    {LAUNCH_FAILURE, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {NOT_SUPPORTED, "cudaErrorNotSupported", "operation not supported"},
};


/* One lock for the tables and the memory, another for the socket: an answer may take minutes. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, line = PTHREAD_MUTEX_INITIALIZER;
static int server = -1;
static pid_t owner;

/* ---- errors, and what is written down ------------------------------------------------------------------------------ */

/* As in CUDA each thread has its last error; the text of it stays until the thread has another. What nobody asked for is forgotten
 * when another execution begins: it is no error of that. */
static __thread int last, last_failed, begun;
static int beginnings;
static __thread char last_text[4096];

static int fail(int error, const char *format, ...) {
    last = last_failed = error, begun = beginnings;
    *last_text = 0;
    if (format) {
        va_list list;
        va_start(list, format);
        vsnprintf(last_text, sizeof last_text, format, list);
        va_end(list);
    }
    return error;
}
const char *cudaGetErrorString(int error) {
    if (error == last_failed && *last_text) return last_text;
    for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++) if (ERRORS[i].number == error) return ERRORS[i].text;
    return "unrecognized error code";
}
const char *cudaGetErrorName(int error) {
    for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++) if (ERRORS[i].number == error) return ERRORS[i].name;
    return "unrecognized error code";
}
int cudaPeekAtLastError(void) { return begun == beginnings ? last : SUCCESS; }
int cudaGetLastError(void) { int error = cudaPeekAtLastError(); last = SUCCESS; return error; }

static char *notes;
static size_t notes_used, notes_room;

void gpu_note(const char *kind, const char *format, ...) {
    char text[2048];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    pthread_mutex_lock(&lock);
    size_t size = strlen(kind) + strlen(text) + 2;
    if (notes_used + size + 1 > notes_room) notes = realloc(notes, notes_room = 2 * (notes_used + size) + 4096);
    notes_used += sprintf(notes + notes_used, "%s\t%s\n", kind, text);
    pthread_mutex_unlock(&lock);
}
/* Return the lines written down since the last call, kind and text, or NULL; gpu_free frees them. */
char *gpu_notes(void) {
    pthread_mutex_lock(&lock);
    char *taken = notes;
    notes = NULL;
    notes_used = notes_room = 0;
    pthread_mutex_unlock(&lock);
    return taken;
}
void gpu_free(void *taken) { free(taken); }
#define UNKNOWN_FUNCTION "%s: the simulated GPU does not have this function"
int gpu_unknown(const char *name) { gpu_note("unknown", UNKNOWN_FUNCTION, name); return NOT_SUPPORTED; }
/* The same of a function of the runtime, which PyTorch asks for the text. */
int gpu_unsupported(const char *name) { gpu_unknown(name); return fail(NOT_SUPPORTED, UNKNOWN_FUNCTION, name); }

/* ---- the socket ---------------------------------------------------------------------------------------------------- */

static void lost(void) {
    static const char words[] = "the process of the simulated GPU has ended\n";
    if (write(2, words, sizeof words - 1) < 0) { /* nobody reads what this process says */ }
    _exit(70);
}
static void send_all(const void *data, size_t size) {
    for (const char *at = data; size;) {
        ssize_t done = send(server, at, size, MSG_NOSIGNAL);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) lost();
        at += done, size -= done;
    }
}
static void receive_all(void *data, size_t size) {
    for (char *at = data; size;) {
        ssize_t done = recv(server, at, size, 0);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) lost();
        at += done, size -= done;
    }
}
/* A reply has a zero behind its payload, which is not counted. */
struct reply { uint32_t status, size; char *data; };

static struct reply ask(uint32_t type, const void *first, size_t size, const void *second, size_t more) {
    struct reply reply = {UNKNOWN, 0, NULL};
    if (server < 0 || getpid() != owner || size + more > UINT32_MAX) {
        /* A fork has the socket too, and would read answers of others. */
        reply.data = strdup("the simulated GPU is not there, or in another process");
        reply.size = strlen(reply.data);
        return reply;
    }
    uint32_t head[2] = {type, (uint32_t)(size + more)}, back[2];
    pthread_mutex_lock(&line);
    send_all(head, sizeof head);
    send_all(first, size);
    send_all(second, more);
    receive_all(back, sizeof back);
    reply = (struct reply){back[0], back[1], malloc((size_t)back[1] + 1)};
    receive_all(reply.data, reply.size);
    pthread_mutex_unlock(&line);
    reply.data[reply.size] = 0;
    return reply;
}
/* Ask on behalf of the worker; *reply is to be freed by gpu_free. */
uint32_t gpu_ask(uint32_t type, const char *payload, size_t size, char **reply, uint32_t *length) {
    struct reply answer = ask(type, payload, size, NULL, 0);
    *reply = answer.data, *length = answer.size;
    return answer.status;
}

struct message { char *data; size_t used, room; };
static void put(struct message *m, const void *data, size_t size) {
    if (m->used + size > m->room) m->data = realloc(m->data, m->room = 2 * (m->used + size) + 256);
    memcpy(m->data + m->used, data, size);
    m->used += size;
}
static void put32(struct message *m, uint32_t value) { put(m, &value, 4); }
static void put64(struct message *m, uint64_t value) { put(m, &value, 8); }

/* ---- memory -------------------------------------------------------------------------------------------------------- */

enum { UNREGISTERED, HOST, DEVICE, MANAGED };
struct range { uint64_t start, size; int type; };
static struct range *ranges; /* ascending */
static size_t range_count, range_room;
static uint64_t arena, held, limit, allocations;
static int fill_kind;
static uint64_t fill_seed, shift;

/* How fresh memory is filled: with NaN of every type (0), random finite numbers (1), zeros (2), huge ones (3). Where no kernel is
 * executed (BLANK) it is all zeros that nobody has written, and takes no memory of this machine, so that there is no limit. */
enum { BLANK = 4 };
int gpu_skips(void) { return fill_kind == BLANK; }
static stream_t worked_on;
static int has_worked;
/* And by how many bytes allocations lie further than they would, so that what depends on addresses shows. */
void gpu_fill(int kind, uint64_t seed, uint64_t further) {
    pthread_mutex_lock(&lock);
    fill_kind = kind, fill_seed = seed, allocations = 0, has_worked = 0, shift = further, beginnings++;
    pthread_mutex_unlock(&lock);
}
static uint64_t mixed(uint64_t x) { /* splitmix64 */
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}
static void fill(uint64_t start, uint64_t size) {
    uint64_t *word = (uint64_t *)start, key = mixed(fill_seed ^ mixed(allocations++)), count = (size + 7) / 8;
    static const uint64_t same[] = {0x7ffa7ffa7ffa7ffaull, 0, 0, 0x7bff7bff7bff7bffull};
    /* Without one bit of its exponent, half, bfloat16, float and double are finite. */
    if (fill_kind == BLANK) {
        uint64_t first = (start + 4095) & ~4095ull, end = (start + size) & ~4095ull;
        if (end <= first) memset(word, 0, size);
        else memset(word, 0, first - start), madvise((void *)first, end - first, MADV_REMOVE), memset((void *)end, 0, start + size - end);
        return;
    }
    if (fill_kind == 1) for (uint64_t i = 0; i < count; i++) word[i] = mixed(key + i) & 0xdfffdfffdfffdfffull;
    else if (fill_kind == 2) memset(word, 0, 8 * count);
    else for (uint64_t i = 0; i < count; i++) word[i] = same[fill_kind];
}
/* Start: the socket, the memory that both map, and how much of it may be allocated. Returns 0, or an error of the system. */
int gpu_start(int socket, int memory, uint64_t most) {
    struct stat known;
    if (fstat(memory, &known)) return errno;
    void *at = mmap((void *)BASE, known.st_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED_NOREPLACE, memory, 0);
    if (at == MAP_FAILED) return errno;
    if (at != (void *)BASE || (uint64_t)known.st_size <= INTERPRETERS_OWN) return EINVAL;
    server = socket, owner = getpid(), arena = known.st_size, limit = most;
    return 0;
}
/* The lowest place that is free: where an allocation lies depends on nothing but on those that exist. */
static int allocate(void **result, size_t size, int type) {
    *result = NULL;
    if (!size) return SUCCESS;
    if (server < 0) return fail(INITIALIZATION, NULL);
    size = (size + 3) / 4 * 4; /* half types are added by comparing and swapping the whole word that they lie in */
    pthread_mutex_lock(&lock);
    uint64_t at = BASE + shift, whole = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + GAP;
    size_t i = 0;
    uint64_t most = fill_kind == BLANK ? arena : limit;
    int fits = size <= most && held + size <= most;
    for (; fits && i < range_count && ranges[i].start < at + whole; i++)
        at = ranges[i].start + (ranges[i].size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + GAP + shift;
    if (!fits || at + whole > BASE + arena - INTERPRETERS_OWN) {
        uint64_t now = held;
        pthread_mutex_unlock(&lock);
        return fail(OUT_OF_MEMORY, "out of memory: %zu bytes, and %llu are held of the %llu that the simulation allows", size,
                    (unsigned long long)now, (unsigned long long)most);
    }
    if (range_count == range_room) ranges = realloc(ranges, (range_room = 2 * range_room + 64) * sizeof *ranges);
    memmove(ranges + i + 1, ranges + i, (range_count++ - i) * sizeof *ranges);
    ranges[i] = (struct range){at, size, type};
    held += size;
    fill(at, size);
    pthread_mutex_unlock(&lock);
    *result = (void *)at;
    return SUCCESS;
}
/* Return the index of the allocation that holds an address, or -1; locked. */
static long range_of(const void *pointer) {
    uint64_t at = (uint64_t)pointer;
    size_t low = 0, high = range_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ranges[middle].start + ranges[middle].size <= at) low = middle + 1;
        else high = middle;
    }
    return low < range_count && ranges[low].start <= at ? (long)low : -1;
}
static int release(void *pointer) {
    if (!pointer) return SUCCESS;
    pthread_mutex_lock(&lock);
    long i = range_of(pointer);
    if (i < 0 || ranges[i].start != (uint64_t)pointer) {
        pthread_mutex_unlock(&lock);
        return fail(INVALID_VALUE, "invalid argument: %p was not allocated", pointer);
    }
    uint64_t first = (ranges[i].start + 4095) & ~4095ull, end = (ranges[i].start + ranges[i].size) & ~4095ull;
    if (first < BASE + KEPT) first = BASE + KEPT;
    if (end > first + (1 << 20)) madvise((void *)first, end - first, MADV_REMOVE); /* given back to the system */
    held -= ranges[i].size;
    memmove(ranges + i, ranges + i + 1, (--range_count - i) * sizeof *ranges);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}
int cudaMalloc(void **p, size_t n) { return allocate(p, n, DEVICE); }
int cudaMallocAsync(void **p, size_t n, stream_t s) { return allocate(p, n, DEVICE); }
int cudaMallocManaged(void **p, size_t n, unsigned flags) { return allocate(p, n, MANAGED); }
int cudaMallocHost(void **p, size_t n) { return allocate(p, n, HOST); }
int cudaHostAlloc(void **p, size_t n, unsigned flags) { return allocate(p, n, HOST); }
int cudaFree(void *p) { return release(p); }
int cudaFreeAsync(void *p, stream_t s) { return release(p); }
int cudaFreeHost(void *p) { return release(p); }
int cudaHostGetDevicePointer(void **d, void *h, unsigned flags) { *d = h; return SUCCESS; }
int cudaMemGetInfo(size_t *left, size_t *all) { *all = DEVICE_MEMORY, *left = DEVICE_MEMORY - held; return SUCCESS; }

static int type_of(const void *pointer) {
    pthread_mutex_lock(&lock);
    long i = range_of(pointer);
    int type = i < 0 ? UNREGISTERED : ranges[i].type;
    pthread_mutex_unlock(&lock);
    return type;
}
int cudaPointerGetAttributes(struct pointer_attributes *a, const void *pointer) {
    int type = type_of(pointer);
    *a = (struct pointer_attributes){type, type ? 0 : -1, type ? (void *)pointer : NULL, type == DEVICE ? NULL : (void *)pointer};
    return SUCCESS;
}
static int in_arena(const void *p) { return (uint64_t)p >= BASE && (uint64_t)p < BASE + arena; }
/* Tell whether so many bytes may be copied or set there: those of one allocation, of the interpreter, or of the host. */
static int reachable(const void *p, size_t n, int device) {
    if (!in_arena(p)) return !device;
    if ((uint64_t)p >= BASE + arena - INTERPRETERS_OWN) return n <= BASE + arena - (uint64_t)p;
    pthread_mutex_lock(&lock);
    long i = range_of(p);
    int whole = i >= 0 && n <= ranges[i].start + ranges[i].size - (uint64_t)p;
    pthread_mutex_unlock(&lock);
    return whole;
}
/* Kinds: host to host 0, host to device 1, device to host 2, device to device 3, by the addresses 4. */
static int copy2d(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, unsigned kind) {
    if (!width || !height) return SUCCESS;
    for (size_t i = 0; i < height; i++) {
        char *d = (char *)to + i * to_pitch;
        const char *s = (const char *)from + i * from_pitch;
        if (kind > 4 || !reachable(d, width, kind == 1 || kind == 3) || !reachable(s, width, kind == 2 || kind == 3))
            return fail(INVALID_VALUE, "invalid argument: a copy of %zu bytes from %p to %p leaves what is allocated", width, s, d);
        if (fill_kind != BLANK || !in_arena(d) || !in_arena(s)) memmove(d, s, width);
    }
    if (fill_kind == BLANK && in_arena(from) && type_of(to) != DEVICE) gpu_note("read", "");
    return SUCCESS;
}
/* All work is done in the order in which it is queued. On several streams a GPU may take others, so that this proves nothing. */
static void works_on(stream_t stream) {
    if (fill_kind == BLANK) return;
    if ((uintptr_t)stream == 1) stream = NULL; /* cudaStreamLegacy, which Thrust names, is the default stream */
    if (has_worked && stream != worked_on) gpu_note("unknown", "%s", "work on several streams, whose orders are not simulated");
    worked_on = stream, has_worked = 1;
}
int cudaMemcpy(void *d, const void *s, size_t n, unsigned kind) { return copy2d(d, 0, s, 0, n, 1, kind); }
int cudaMemcpyAsync(void *d, const void *s, size_t n, unsigned kind, stream_t stream) { works_on(stream); return copy2d(d, 0, s, 0, n, 1, kind); }
int cudaMemcpyPeerAsync(void *d, int to, const void *s, int from, size_t n, stream_t stream) { return copy2d(d, 0, s, 0, n, 1, 3); }
int cudaMemcpy2DAsync(void *d, size_t dp, const void *s, size_t sp, size_t w, size_t h, unsigned kind, stream_t stream) { return copy2d(d, dp, s, sp, w, h, kind); }
int cudaMemset(void *d, int value, size_t n) {
    if (n && !reachable(d, n, 1)) return fail(INVALID_VALUE, "invalid argument: %zu bytes at %p leave what is allocated", n, d);
    if (fill_kind != BLANK || value) memset(d, value, n); /* where nothing is executed all is 0 */
    return SUCCESS;
}
int cudaMemsetAsync(void *d, int value, size_t n, stream_t stream) { works_on(stream); return cudaMemset(d, value, n); }

/* ---- kernels and variables ----------------------------------------------------------------------------------------- */

struct image { uint64_t number; const char *data; int sent; };
static uint64_t images;
struct known { /* what the interpreter says of a kernel */
    int32_t registers, shared, constant, local, threads, dynamic, binary, ptx;
    uint32_t count;
    struct { uint32_t offset, size; } parameters[];
};
/* What a fat binary registers, by the address that stands for it in the host's code: a kernel or a variable. */
struct symbol {
    const void *at;
    const char *name;
    struct image *image;
    struct known *known;
    int dynamic, carveout; /* as cudaFuncSetAttribute sets them */
    uint64_t address, size; /* of a variable */
};
static struct symbol **symbols; /* open addressing: libtorch_cuda registers some tens of thousands */
static size_t slots, taken;

static struct symbol **slot_of(const void *at) {
    for (size_t i = mixed((uint64_t)at);; i++) {
        struct symbol **s = &symbols[i & (slots - 1)];
        if (!*s || (*s)->at == at) return s;
    }
}
static void add(void **handle, const void *at, const char *name) {
    pthread_mutex_lock(&lock);
    if (2 * taken >= slots) {
        struct symbol **old = symbols;
        size_t count = slots;
        slots = slots ? 2 * slots : 1 << 16;
        symbols = calloc(slots, sizeof *symbols);
        for (size_t i = 0; i < count; i++) if (old[i]) *slot_of(old[i]->at) = old[i];
        free(old);
    }
    struct symbol **slot = slot_of(at);
    if (!*slot) taken++, *slot = calloc(1, sizeof **slot);
    **slot = (struct symbol){.at = at, .name = name, .image = (struct image *)handle, .carveout = -1};
    pthread_mutex_unlock(&lock);
}
/* The wrapper: magic number and version (4 bytes each), the fat binary, and what only linking needs. */
void **__cudaRegisterFatBinary(const void *wrapper) {
    struct image *image = calloc(1, sizeof *image);
    image->number = __atomic_add_fetch(&images, 1, __ATOMIC_RELAXED);
    image->data = ((const char *const *)wrapper)[1];
    return (void **)image;
}
void __cudaRegisterFatBinaryEnd(void **handle) {}
void __cudaUnregisterFatBinary(void **handle) {}
char __cudaInitModule(void **handle) { return 1; }
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int threads, void *t, void *b, void *bd, void *gd, int *warp) { add(handle, host, name); }
void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external, size_t size, int constant, int global) { add(handle, host, name); }

/* A fat binary says how long it is: magic number, version (2 bytes), length of the header (2), of the rest (8). A cubin is an ELF
 * file, which ends with its tables or the last section; of anything else it is 0. */
static size_t size_of(const char *data) {
    uint16_t head;
    uint64_t rest, tables[2];
    if (!memcmp(data, "\x50\xed\x55\xba", 4)) return memcpy(&head, data + 6, 2), memcpy(&rest, data + 8, 8), head + rest;
    if (memcmp(data, "\177ELF", 4)) return 0;
    uint16_t entries[4]; /* size and number of the segments, and of the sections */
    memcpy(tables, data + 32, sizeof tables), memcpy(entries, data + 54, sizeof entries);
    size_t end = tables[0] + entries[0] * entries[1];
    if (tables[1] + entries[2] * entries[3] > end) end = tables[1] + entries[2] * entries[3];
    for (unsigned i = 0; i < entries[3]; i++) {
        struct { uint32_t name, type; uint64_t flags, address, offset, size; } section;
        memcpy(&section, data + tables[1] + i * entries[2], sizeof section);
        if (section.type != 8 && section.offset + section.size > end) end = section.offset + section.size; /* 8: takes no place */
    }
    return end;
}
/* What the driver loads: a copy of it, whose kernels and variables are looked up by their names; NULL if it is neither. */
void *gpu_module(const void *data) {
    size_t size = size_of(data);
    if (!size) return NULL;
    struct image *image = calloc(1, sizeof *image);
    image->number = __atomic_add_fetch(&images, 1, __ATOMIC_RELAXED);
    image->data = memcpy(malloc(size), data, size);
    return image;
}
/* Return what stands for a kernel or a variable of a module, as the address of a host's function does in compiled code. */
const void *gpu_symbol(void *module, const char *name) { char *at = strdup(name); add(module, at, at); return at; }

/* Return what is registered at an address, its fat binary being known to the interpreter; else NULL, and the last error. */
static struct symbol *find(const void *at, int error) {
    pthread_mutex_lock(&lock);
    struct symbol *s = slots ? *slot_of(at) : NULL;
    pthread_mutex_unlock(&lock);
    if (!s) return fail(error, NULL), NULL;
    if (!__atomic_load_n(&s->image->sent, __ATOMIC_ACQUIRE)) {
        struct reply r = ask(IMAGE, &s->image->number, 8, s->image->data, size_of(s->image->data));
        if (r.status) fail(NO_KERNEL_IMAGE, "%s", r.data), s = NULL;
        else __atomic_store_n(&s->image->sent, 1, __ATOMIC_RELEASE);
        free(r.data);
    }
    return s;
}
static struct symbol *kernel(const void *at) {
    struct symbol *s = find(at, INVALID_DEVICE_FUNCTION);
    if (!s || __atomic_load_n(&s->known, __ATOMIC_ACQUIRE)) return s;
    struct reply r = ask(FUNCTION, &s->image->number, 8, s->name, strlen(s->name));
    struct known *known = (struct known *)r.data;
    if (r.status) return fail(NO_KERNEL_IMAGE, "%s", r.data), free(r.data), NULL;
    if (r.size < sizeof *known || r.size != sizeof *known + known->count * sizeof *known->parameters) lost();
    s->dynamic = known->dynamic;
    __atomic_store_n(&s->known, known, __ATOMIC_RELEASE);
    return s;
}
int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *f, int threads, size_t shared) {
    struct symbol *k = kernel(f);
    if (!k) return last_failed;
    struct message m = {0};
    put64(&m, k->image->number), put32(&m, threads), put64(&m, shared), put(&m, k->name, strlen(k->name));
    struct reply r = ask(OCCUPANCY, m.data, m.used, NULL, 0);
    int failed = r.status || r.size != 4;
    if (failed) fail(INVALID_VALUE, "%s", r.data);
    else memcpy(blocks, r.data, 4);
    free(r.data), free(m.data);
    return failed ? INVALID_VALUE : SUCCESS;
}
static int launched(const void *at, dim3 grid, dim3 block, void **args, size_t shared, int cooperative) {
    struct symbol *k = kernel(at);
    if (!k) return last_failed;
    struct known *known = k->known;
    uint64_t threads = (uint64_t)block.x * block.y * block.z;
    if (!threads || !grid.x || !grid.y || !grid.z || threads > DEVICE_MaxThreadsPerBlock || block.x > DEVICE_MaxBlockDimX ||
        block.y > DEVICE_MaxBlockDimY || block.z > DEVICE_MaxBlockDimZ || grid.x > DEVICE_MaxGridDimX ||
        grid.y > DEVICE_MaxGridDimY || grid.z > DEVICE_MaxGridDimZ)
        return fail(INVALID_CONFIGURATION, NULL);
    if (threads > (uint64_t)known->threads) return fail(OUT_OF_RESOURCES, NULL);
    if (shared > (size_t)k->dynamic) return fail(INVALID_VALUE, NULL);
    if (cooperative) { /* all blocks wait for one another, so that all have to fit */
        int blocks = 0, error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, at, threads, shared);
        if (error) return error;
        if ((uint64_t)grid.x * grid.y * grid.z > (uint64_t)blocks * DEVICE_MultiProcessorCount) return fail(COOPERATIVE_TOO_LARGE, NULL);
    }
    uint32_t size = 0;
    for (uint32_t i = 0; i < known->count; i++)
        if (known->parameters[i].offset + known->parameters[i].size > size) size = known->parameters[i].offset + known->parameters[i].size;
    char *parameters = calloc(1, size + 1);
    for (uint32_t i = 0; i < known->count; i++) memcpy(parameters + known->parameters[i].offset, args[i], known->parameters[i].size);
    struct message m = {0};
    put64(&m, k->image->number);
    put(&m, &grid, sizeof grid), put(&m, &block, sizeof block);
    put64(&m, shared), put32(&m, cooperative);
    put32(&m, strlen(k->name)), put(&m, k->name, strlen(k->name));
    put32(&m, size), put(&m, parameters, size);
    pthread_mutex_lock(&lock);
    put32(&m, range_count);
    for (size_t i = 0; i < range_count; i++) put64(&m, ranges[i].start), put64(&m, ranges[i].size);
    pthread_mutex_unlock(&lock);
    struct reply r = ask(LAUNCH, m.data, m.used, NULL, 0);
    if (r.status) fail(LAUNCH_FAILURE, "%s", r.data);
    free(r.data), free(m.data), free(parameters);
    return r.status ? LAUNCH_FAILURE : SUCCESS;
}
static __thread struct { dim3 grid, block; size_t shared; stream_t stream; } pushed[8];
static __thread int depth;
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, stream_t stream) {
    if (depth == 8) return 1;
    pushed[depth].grid = grid, pushed[depth].block = block, pushed[depth].shared = shared, pushed[depth++].stream = stream;
    return 0;
}
int __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, stream_t *stream) {
    if (!depth) return fail(MISSING_CONFIGURATION, NULL);
    *grid = pushed[--depth].grid, *block = pushed[depth].block, *shared = pushed[depth].shared, *stream = pushed[depth].stream;
    return SUCCESS;
}
int cudaLaunchKernel(const void *f, dim3 grid, dim3 block, void **args, size_t shared, stream_t s) { works_on(s); return launched(f, grid, block, args, shared, 0); }
int cudaLaunchCooperativeKernel(const void *f, dim3 grid, dim3 block, void **args, size_t shared, stream_t s) { works_on(s); return launched(f, grid, block, args, shared, 1); }
int __cudaGetKernel(const void **kernel, const void *f) { *kernel = f; return SUCCESS; }
int __cudaLaunchKernel(const void *f, dim3 grid, dim3 block, void **args, size_t shared, stream_t s) { works_on(s); return launched(f, grid, block, args, shared, 0); }
int cudaGetFuncBySymbol(const void **function, const void *f) { *function = f; return SUCCESS; }

int cudaLaunchKernelExC(const struct launch_config *c, const void *f, void **args) {
    int cooperative = 0;
    for (unsigned i = 0; i < c->count; i++) {
        const struct launch_attribute *a = &c->attributes[i];
        if (a->id == 2) cooperative = a->value.cooperative != 0;
        if (a->id == 4 && a->value.cluster.x * a->value.cluster.y * a->value.cluster.z > 1) return gpu_unsupported("cudaLaunchKernelExC of clusters");
    }
    works_on(c->stream);
    return launched(f, c->grid, c->block, args, c->shared, cooperative);
}
int cudaFuncGetAttributes(struct function_attributes *a, const void *f) {
    struct symbol *k = kernel(f);
    if (!k) return last_failed;
    struct known *n = k->known;
    *a = (struct function_attributes){n->shared, n->constant, n->local, n->threads, n->registers, n->ptx, n->binary, 0, k->dynamic, k->carveout};
    return SUCCESS;
}
int cudaFuncSetAttribute(const void *f, int attribute, int value) {
    struct symbol *k = kernel(f);
    if (!k) return last_failed;
    if (attribute == 8 && value >= 0 && value + k->known->shared <= DEVICE_MaxSharedMemoryPerBlockOptin) k->dynamic = value;
    else if (attribute == 9 && value >= -1 && value <= 100) k->carveout = value;
    else return fail(INVALID_VALUE, NULL);
    return SUCCESS;
}
int cudaKernelSetAttributeForDevice(const void *f, int attribute, int value, int device) { return cudaFuncSetAttribute(f, attribute, value); }
int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *f, int threads, size_t shared, unsigned flags) { return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, f, threads, shared); }

static struct symbol *variable(const void *at) {
    struct symbol *s = find(at, INVALID_SYMBOL);
    if (!s || s->address) return s;
    struct reply r = ask(SYMBOL, &s->image->number, 8, s->name, strlen(s->name));
    if (r.status || r.size != 16) fail(INVALID_SYMBOL, "%s", r.data), s = NULL;
    else memcpy(&s->size, r.data + 8, 8), memcpy(&s->address, r.data, 8);
    free(r.data);
    return s;
}
int cudaGetSymbolAddress(void **address, const void *symbol) {
    struct symbol *s = variable(symbol);
    if (s) *address = (void *)s->address;
    return s ? SUCCESS : last_failed;
}
int cudaGetSymbolSize(size_t *size, const void *symbol) {
    struct symbol *s = variable(symbol);
    if (s) *size = s->size;
    return s ? SUCCESS : last_failed;
}
static int copied(const void *symbol, const void *host, void *out, size_t n, size_t offset, unsigned kind) {
    struct symbol *s = variable(symbol);
    if (!s) return last_failed;
    if (offset > s->size || n > s->size - offset) return fail(INVALID_VALUE, NULL);
    void *at = (void *)(s->address + offset);
    return host ? copy2d(at, 0, host, 0, n, 1, kind) : copy2d(out, 0, at, 0, n, 1, kind);
}
int cudaMemcpyToSymbol(const void *symbol, const void *from, size_t n, size_t offset, unsigned kind) { return copied(symbol, from, NULL, n, offset, kind); }
int cudaMemcpyToSymbolAsync(const void *symbol, const void *from, size_t n, size_t offset, unsigned kind, stream_t s) { return copied(symbol, from, NULL, n, offset, kind); }
int cudaMemcpyFromSymbol(void *to, const void *symbol, size_t n, size_t offset, unsigned kind) { return copied(symbol, NULL, to, n, offset, kind); }
int cudaMemcpyFromSymbolAsync(void *to, const void *symbol, size_t n, size_t offset, unsigned kind, stream_t s) { return copied(symbol, NULL, to, n, offset, kind); }

/* ---- the device ---------------------------------------------------------------------------------------------------- */

int cudaGetDeviceCount(int *n) { *n = 1; return SUCCESS; }
int cudaGetDevice(int *device) { *device = 0; return SUCCESS; }
int cudaSetDevice(int device) { return device ? fail(INVALID_DEVICE, NULL) : SUCCESS; }
int cudaDriverGetVersion(int *version) { *version = RUNTIME_VERSION; return SUCCESS; }
int cudaRuntimeGetVersion(int *version) { *version = RUNTIME_VERSION; return SUCCESS; }
int cudaDeviceGetAttribute(int *value, int attribute, int device) {
    if (device) return fail(INVALID_DEVICE, NULL);
    switch (attribute) {
#define ONE(number, known) case number: *value = known; return SUCCESS;
    DEVICE_ATTRIBUTES(ONE)
#undef ONE
    }
    char name[64];
    snprintf(name, sizeof name, "cudaDeviceGetAttribute of attribute %d", attribute);
    return gpu_unsupported(name);
}
struct properties { /* cudaDeviceProp of CUDA 13, as far as anything of it is known here; textures and surfaces are left out */
    char name[256], uuid[16], luid[8];
    unsigned luid_mask;
    size_t memory, shared;
    int registers, warp;
    size_t pitch;
    int threads, block[3], grid[3];
    size_t constant;
    int major, minor;
    size_t texture_alignment, texture_pitch_alignment;
    int multiprocessors, integrated, maps_host, textures[39];
    size_t surface_alignment;
    int concurrent, ecc, bus, device, domain, tcc, engines, unified, bus_width, l2, persisting_l2, threads_all, priorities, global_l1, local_l1;
    size_t shared_all;
    int registers_all, managed, board, board_group, native_atomics, pageable, concurrent_managed, preemption, host_pointers, cooperative;
    size_t shared_most;
    int host_tables, direct, blocks, window;
    size_t reserved;
    int registers_host, sparse, read_only, semaphores, pools;
};
_Static_assert(offsetof(struct properties, surface_alignment) == 552 && offsetof(struct properties, shared_most) == 672 && offsetof(struct properties, pools) == 720, "cudaDeviceProp");
int cudaGetDeviceProperties(struct properties *p, int device) {
    if (device) return fail(INVALID_DEVICE, NULL);
    *p = (struct properties){
        .name = DEVICE_NAME, .uuid = "simulated GPU 0", .memory = DEVICE_MEMORY, .shared = DEVICE_MaxSharedMemoryPerBlock,
        .registers = DEVICE_MaxRegistersPerBlock, .warp = DEVICE_WarpSize, .pitch = DEVICE_MaxPitch, .threads = DEVICE_MaxThreadsPerBlock,
        .block = {DEVICE_MaxBlockDimX, DEVICE_MaxBlockDimY, DEVICE_MaxBlockDimZ}, .grid = {DEVICE_MaxGridDimX, DEVICE_MaxGridDimY, DEVICE_MaxGridDimZ},
        .constant = DEVICE_TotalConstantMemory, .major = DEVICE_ComputeCapabilityMajor, .minor = DEVICE_ComputeCapabilityMinor,
        .texture_alignment = DEVICE_TextureAlignment, .texture_pitch_alignment = DEVICE_TexturePitchAlignment,
        .multiprocessors = DEVICE_MultiProcessorCount, .integrated = DEVICE_Integrated, .maps_host = DEVICE_CanMapHostMemory,
        .surface_alignment = DEVICE_SurfaceAlignment, .concurrent = DEVICE_ConcurrentKernels, .ecc = DEVICE_EccEnabled,
        .bus = DEVICE_PciBusId, .device = DEVICE_PciDeviceId, .domain = DEVICE_PciDomainId, .tcc = DEVICE_TccDriver,
        .engines = DEVICE_AsyncEngineCount, .unified = DEVICE_UnifiedAddressing, .bus_width = DEVICE_GlobalMemoryBusWidth,
        .l2 = DEVICE_L2CacheSize, .threads_all = DEVICE_MaxThreadsPerMultiProcessor, .priorities = DEVICE_StreamPrioritiesSupported,
        .global_l1 = DEVICE_GlobalL1CacheSupported, .local_l1 = DEVICE_LocalL1CacheSupported,
        .shared_all = DEVICE_MaxSharedMemoryPerMultiprocessor, .registers_all = DEVICE_MaxRegistersPerMultiprocessor,
        .managed = DEVICE_ManagedMemory, .board = DEVICE_IsMultiGpuBoard, .board_group = DEVICE_MultiGpuBoardGroupID,
        .native_atomics = DEVICE_HostNativeAtomicSupported, .pageable = DEVICE_PageableMemoryAccess,
        .concurrent_managed = DEVICE_ConcurrentManagedAccess, .preemption = DEVICE_ComputePreemptionSupported,
        .host_pointers = DEVICE_CanUseHostPointerForRegisteredMem, .cooperative = DEVICE_CooperativeLaunch,
        .shared_most = DEVICE_MaxSharedMemoryPerBlockOptin, .host_tables = DEVICE_PageableMemoryAccessUsesHostPageTables,
        .direct = DEVICE_DirectManagedMemAccessFromHost, .blocks = DEVICE_MaxBlocksPerMultiprocessor,
        .reserved = DEVICE_ReservedSharedMemoryPerBlock, .registers_host = DEVICE_HostRegisterSupported, .pools = DEVICE_MemoryPoolsSupported,
    };
    return SUCCESS;
}
int cudaDeviceCanAccessPeer(int *can, int a, int b) { *can = 0; return SUCCESS; }
int cudaDeviceGetPCIBusId(char *id, int size, int device) {
    snprintf(id, size, "%04x:%02x:%02x.0", DEVICE_PciDomainId, DEVICE_PciBusId, DEVICE_PciDeviceId);
    return SUCCESS;
}
int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return SUCCESS;
}
int cudaDeviceSynchronize(void) { return SUCCESS; }
int cudaProfilerStart(void) { return SUCCESS; }
int cudaProfilerStop(void) { return SUCCESS; }

/* ---- streams and events: whatever was asked for is done ------------------------------------------------------------ */

int cudaStreamCreateWithPriority(stream_t *s, unsigned flags, int priority) {
    *s = calloc(1, sizeof **s);
    (*s)->priority = priority;
    return SUCCESS;
}
int cudaStreamCreateWithFlags(stream_t *s, unsigned flags) { return cudaStreamCreateWithPriority(s, flags, 0); }
int cudaStreamCreate(stream_t *s) { return cudaStreamCreateWithPriority(s, 0, 0); }
int cudaStreamDestroy(stream_t s) { free(s); return SUCCESS; }
/* The default streams are the numbers 0, 1 and 2. */
int cudaStreamGetPriority(stream_t s, int *priority) { *priority = (uintptr_t)s > 2 ? s->priority : 0; return SUCCESS; }
int cudaStreamQuery(stream_t s) { return SUCCESS; }
int cudaStreamSynchronize(stream_t s) { return SUCCESS; }
int cudaStreamWaitEvent(stream_t s, void *event, unsigned flags) { return SUCCESS; }
int cudaStreamAddCallback(stream_t s, void (*f)(stream_t, int, void *), void *data, unsigned flags) { f(s, SUCCESS, data); return SUCCESS; }
int cudaLaunchHostFunc(stream_t s, void (*f)(void *), void *data) { f(data); return SUCCESS; }
/* Nothing captures: what a CUDA graph would replay is not simulated. */
int cudaStreamBeginCapture(stream_t s, int mode) { gpu_note("library", "cudaStreamBeginCapture"); return fail(NOT_SUPPORTED, "%s", "CUDA graphs are not simulated"); }
int cudaStreamIsCapturing(stream_t s, int *status) { *status = 0; return SUCCESS; }
int cudaStreamGetCaptureInfo(stream_t s, int *status, unsigned long long *id, void **graph, void *nodes, void *edges, size_t *count) { *status = 0; return SUCCESS; }
int cudaThreadExchangeStreamCaptureMode(int *mode) { return SUCCESS; }
int cudaEventCreateWithFlags(void **event, unsigned flags) { *event = calloc(1, 16); return SUCCESS; }
int cudaEventCreate(void **event) { return cudaEventCreateWithFlags(event, 0); }
int cudaEventDestroy(void *event) { free(event); return SUCCESS; }
int cudaEventQuery(void *event) { return SUCCESS; }
int cudaEventRecord(void *event, stream_t s) { return SUCCESS; }
int cudaEventRecordWithFlags(void *event, stream_t s, unsigned flags) { return SUCCESS; }
int cudaEventSynchronize(void *event) { return SUCCESS; }
/* Always a second: who times candidates has had enough after one execution of each, and takes the first of equals. */
int cudaEventElapsedTime(float *milliseconds, void *from, void *to) { *milliseconds = 1000; return SUCCESS; }

/* ---- the driver: by name from its stand-in, else a function that says by its name that it was called ----------------- */

#define PLACES(X) ROW(X, 0) ROW(X, 1) ROW(X, 2) ROW(X, 3) ROW(X, 4) ROW(X, 5) ROW(X, 6) ROW(X, 7) ROW(X, 8) ROW(X, 9)
#define ROW(X, n) X(n##0) X(n##1) X(n##2) X(n##3) X(n##4) X(n##5) X(n##6) X(n##7) X(n##8) X(n##9)
static const char *absent[100];
#define FUNCTION_AT(n) static int absent_##n(void) { return gpu_unknown(absent[1##n - 100]); }
PLACES(FUNCTION_AT)
#define ADDRESS_AT(n) (void *)absent_##n,
static void *const absent_at[] = {PLACES(ADDRESS_AT)};

int cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags, int *found) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    *function = driver ? dlsym(driver, name) : NULL;
    if (found) *found = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < 100 && !*function; i++) {
        if (!absent[i]) absent[i] = strdup(name);
        if (!strcmp(absent[i], name)) *function = absent_at[i];
    }
    pthread_mutex_unlock(&lock);
    return *function ? SUCCESS : gpu_unknown(name);
}
int cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version, unsigned long long flags, int *found) { return cudaGetDriverEntryPoint(name, function, flags, found); }

/* ---- what stubs of other libraries do: write down that they were called, and return handles and zeros ---------------- */

long gpu_standin(const char *name, const char *results, int computes, long *a) {
    if (computes) gpu_note("library", "%s", name);
    while (*results) {
        char kind = *results++;
        long *at = (long *)a[strtol(results, (char **)&results, 10)];
        if (!at) continue;
        if (kind == 'h') *at = (long)calloc(1, 512);
        else if (kind == '8') *at = 0;
        else *(int *)at = 0;
        results += *results == ' ';
    }
    return 0;
}
