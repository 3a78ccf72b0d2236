/* One call that rounds rows of states, multiplies whole numbers and scales the results:
 *
 *     out[r][n] = (float)(sum_k (whole[r][k] - zero) weight[n][k]) * scale_w[n] * scale_x[r] + bias[n]
 *
 * torch needs one call for each of these steps, and with the few rows of a step of decoding the calls take longer than
 * the product. Every float operation is the one that torch and oneDNN do, in their order, so that results are equal
 * bit for bit (tests/native/test_int8.py). Nothing here knows torch or allocates Python objects: int8.py checks all
 * that is given, because sizes that do not fit the memory they speak of would be read and written beyond its end.
 *
 * Weights are packed by int8.py in panels: [panel of outputs][group of 4 inputs][output][input of the group]. A
 * register holds one group of 16 outputs, or of 8, and vpdpbusd multiplies all of them by the same 4 states of a row. A
 * panel is read from its beginning to its end: weights come from memory as fast as it gives them.
 */
#include "parts.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PANEL_512 64 /* outputs: four registers; with 6 rows of sums, 4 of weights and one of states, 29 of the 32 */
#define ROWS_512 6
#define PANEL_256 16 /* two registers; with 4 rows of sums, two of weights and what lies between, 13 of the 16 */
#define ROWS_256 4
#define MAX_SUMS (ROWS_512 * PANEL_512)
#define PART_OUTPUTS 64 /* that a thread takes at a time: whole panels */
#define BLOCK_BYTES (128 * 1024) /* of rounded rows that pass by a panel while both are in the second cache */

typedef struct {
    const float *states; /* [num_rows][num_inputs] */
    const int8_t *packed;
    const int32_t *start; /* of each output's sum: -zero * sum of its weights; as many as packed outputs */
    const float *scales;  /* of each output */
    const float *bias;    /* or NULL */
    float *out;           /* [num_rows][num_outputs] */
    size_t num_rows, num_inputs, num_outputs;
    float largest;
    int zero;
} Product;

#if HAS_KERNELS
typedef int32_t __attribute__((may_alias)) float_bits;

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma")))
/* Only compilers that are known to ask the processor for AVX-VNNI compile that one. */
#if !defined(__clang__) && __GNUC__ >= 11
#define HAS_AVXVNNI 1
#define AVXVNNI __attribute__((target("avxvnni,avx2,fma")))
#else
#define HAS_AVXVNNI 0
#endif

/* ---- Rounding and scaling: plain loops, which the compiler turns into vectors of each level. ---- */

/* The largest size of a row. Sizes of floats are ordered as their bits are, and what is not a number is above all, so
 * that it is found as torch's maximum finds it. */
INLINE float largest_size(const float *row, size_t num_inputs) {
    const float_bits *bits = (const float_bits *)row;
    int32_t most = 0;
    for (size_t i = 0; i < num_inputs; i++) {
        int32_t size = bits[i] & 0x7fffffff;
        most = size > most ? size : most;
    }
    float found;
    memcpy(&found, &most, sizeof found);
    return found;
}

/* Gives the row's scale. A division, not a product with the inverse: that would round otherwise. What is not a number
 * becomes any whole number, and the scale, which is none either, makes its row's results none. */
INLINE float round_row(const float *row, size_t num_inputs, float largest, int zero, uint8_t *whole) {
    float size = largest_size(row, num_inputs);
    float scale = (size < 1e-12f ? 1e-12f : size) / largest;
    for (size_t i = 0; i < num_inputs; i++)
        whole[i] = (uint8_t)((int32_t)__builtin_rintf(row[i] / scale) + zero);
    return scale;
}

/* With a bias, torch's addcmul rounds once for product and sum. The compiler may not do so by itself: setup.py. */
INLINE void scale_row(const int32_t *sums, size_t width, const float *scales, float scale, const float *bias,
                      float *out) {
    if (bias)
        for (size_t n = 0; n < width; n++)
            out[n] = __builtin_fmaf((float)sums[n] * scales[n], scale, bias[n]);
    else
        for (size_t n = 0; n < width; n++)
            out[n] = (float)sums[n] * scales[n] * scale;
}

INLINE int32_t four_states(const uint8_t *whole) {
    int32_t four;
    memcpy(&four, whole, sizeof four);
    return four;
}

/* ---- Sums of one panel and a few rows. `num_rows` is a constant where it is inlined: sums are registers. ---- */

INLINE AVX512 void sum_rows_512(int num_rows, const uint8_t *whole, size_t stride, const int8_t *panel,
                                const int32_t *start, size_t num_groups, int32_t *sums) {
    enum { VECTORS = PANEL_512 / 16 };
    __m512i found[ROWS_512][VECTORS], weights[VECTORS];
    UNROLL for (int r = 0; r < num_rows; r++)
        UNROLL for (int v = 0; v < VECTORS; v++)
            found[r][v] = _mm512_loadu_si512(start + 16 * v);
    for (size_t g = 0; g < num_groups; g++, panel += 4 * PANEL_512, whole += 4) {
        UNROLL for (int v = 0; v < VECTORS; v++)
            weights[v] = _mm512_loadu_si512(panel + 64 * v);
        UNROLL for (int r = 0; r < num_rows; r++) {
            __m512i states = _mm512_set1_epi32(four_states(whole + (size_t)r * stride));
            UNROLL for (int v = 0; v < VECTORS; v++)
                found[r][v] = _mm512_dpbusd_epi32(found[r][v], states, weights[v]);
        }
    }
    UNROLL for (int r = 0; r < num_rows; r++)
        UNROLL for (int v = 0; v < VECTORS; v++)
            _mm512_storeu_si512(sums + PANEL_512 * r + 16 * v, found[r][v]);
}

#define SUM_ROWS_256(NAME, TARGET, ADD)                                                                               \
    INLINE TARGET void NAME(int num_rows, const uint8_t *whole, size_t stride, const int8_t *panel,                   \
                            const int32_t *start, size_t num_groups, int32_t *sums) {                                 \
        __m256i found[ROWS_256][2];                                                                                   \
        UNROLL for (int r = 0; r < num_rows; r++) {                                                                   \
            found[r][0] = _mm256_loadu_si256((const __m256i *)start);                                                 \
            found[r][1] = _mm256_loadu_si256((const __m256i *)(start + 8));                                           \
        }                                                                                                             \
        for (size_t g = 0; g < num_groups; g++, panel += 4 * PANEL_256, whole += 4) {                                 \
            __m256i low = _mm256_loadu_si256((const __m256i *)panel);                                                 \
            __m256i high = _mm256_loadu_si256((const __m256i *)(panel + 32));                                         \
            UNROLL for (int r = 0; r < num_rows; r++) {                                                               \
                __m256i states = _mm256_set1_epi32(four_states(whole + (size_t)r * stride));                          \
                found[r][0] = ADD(found[r][0], states, low);                                                          \
                found[r][1] = ADD(found[r][1], states, high);                                                         \
            }                                                                                                         \
        }                                                                                                             \
        UNROLL for (int r = 0; r < num_rows; r++) {                                                                   \
            _mm256_storeu_si256((__m256i *)(sums + PANEL_256 * r), found[r][0]);                                      \
            _mm256_storeu_si256((__m256i *)(sums + PANEL_256 * r + 8), found[r][1]);                                  \
        }                                                                                                             \
    }

/* Pairs of products in 16 bits, then pairs of pairs in 32. States of 7 bits: 2 * 127 * 127 fits. */
INLINE AVX2 __m256i add_products_avx2(__m256i sum, __m256i states, __m256i weights) {
    __m256i pairs = _mm256_maddubs_epi16(states, weights);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
SUM_ROWS_256(sum_rows_avx2, AVX2, add_products_avx2)

#if HAS_AVXVNNI
INLINE AVXVNNI __m256i add_products_avxvnni(__m256i sum, __m256i states, __m256i weights) {
    return _mm256_dpbusd_avx_epi32(sum, states, weights);
}
SUM_ROWS_256(sum_rows_avxvnni, AVXVNNI, add_products_avxvnni)
#endif

/* ---- A level: what a processor can do. Each has the same three functions. ---- */

typedef struct {
    const char *name;
    int max_zero; /* 64 where products are added in 16 bits */
    int panel;    /* outputs */
    int num_rows; /* that are summed at once, at most */
    float (*round)(const float *row, size_t num_inputs, float largest, int zero, uint8_t *whole);
    void (*sum)(size_t num_rows, const uint8_t *whole, size_t stride, const int8_t *panel, const int32_t *start,
                size_t num_groups, int32_t *sums);
    void (*scale)(const int32_t *sums, size_t width, const float *scales, float scale, const float *bias, float *out);
} Level;

#define CASE(SUM, ROWS)                                                                                               \
    case ROWS: SUM(ROWS, whole, stride, panel, start, num_groups, sums); break;
#define CASES_4(SUM) CASE(SUM, 1) CASE(SUM, 2) CASE(SUM, 3) CASE(SUM, 4)
#define CASES_6(SUM) CASES_4(SUM) CASE(SUM, 5) CASE(SUM, 6)
#define LEVEL(NAME, TARGET, SUM, CASES, PANEL, ROWS, MAX_ZERO)                                                        \
    static TARGET float NAME##_round(const float *row, size_t num_inputs, float largest, int zero, uint8_t *whole) {  \
        return round_row(row, num_inputs, largest, zero, whole);                                                      \
    }                                                                                                                 \
    static TARGET void NAME##_sum(size_t num_rows, const uint8_t *whole, size_t stride, const int8_t *panel,          \
                                  const int32_t *start, size_t num_groups, int32_t *sums) {                           \
        switch (num_rows) { CASES(SUM) default: break; }                                                              \
    }                                                                                                                 \
    static TARGET void NAME##_scale(const int32_t *sums, size_t width, const float *scales, float scale,              \
                                    const float *bias, float *out) {                                                  \
        scale_row(sums, width, scales, scale, bias, out);                                                             \
    }                                                                                                                 \
    static const Level NAME = {#NAME, MAX_ZERO, PANEL, ROWS, NAME##_round, NAME##_sum, NAME##_scale};

LEVEL(avx512vnni, AVX512, sum_rows_512, CASES_6, PANEL_512, ROWS_512, 128)
LEVEL(avx2, AVX2, sum_rows_avx2, CASES_4, PANEL_256, ROWS_256, 64)
#if HAS_AVXVNNI
LEVEL(avxvnni, AVXVNNI, sum_rows_avxvnni, CASES_4, PANEL_256, ROWS_256, 128)
#endif

/* The levels of this processor, the fastest first; NULL after the last. */
static const Level *known_level(int number) {
    const Level *found[4] = {NULL};
    int count = 0;
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma"))
        found[count++] = &avx512vnni;
#if HAS_AVXVNNI
    if (__builtin_cpu_supports("avxvnni") && __builtin_cpu_supports("fma"))
        found[count++] = &avxvnni;
#endif
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        found[count++] = &avx2;
    return number >= 0 && number < count ? found[number] : NULL;
}

/* ---- The whole product, in parts that threads take one by one. ---- */

typedef struct {
    const Product *product;
    const Level *level;
    uint8_t *whole;    /* [num_rows][stride] */
    float *row_scales; /* [num_rows] */
    size_t stride, num_groups, block_rows, parts_across;
} Job;

static void round_block(const void *data, size_t part) {
    const Job *job = data;
    const Product *product = job->product;
    size_t last = smaller(product->num_rows, (part + 1) * job->block_rows);
    for (size_t row = part * job->block_rows; row < last; row++) {
        uint8_t *whole = job->whole + row * job->stride;
        const float *states = product->states + row * product->num_inputs;
        job->row_scales[row] = job->level->round(states, product->num_inputs, product->largest, product->zero, whole);
        memset(whole + product->num_inputs, 0, job->stride - product->num_inputs);
    }
}

/* One panel for one block of rows: what both need stays in the caches. */
static void multiply_panel(const Job *job, size_t first, size_t row, size_t last) {
    const Product *product = job->product;
    const Level *level = job->level;
    size_t width = smaller((size_t)level->panel, product->num_outputs - first);
    const int8_t *panel = product->packed + first * 4 * job->num_groups;
    const float *bias = product->bias ? product->bias + first : NULL;
    int32_t sums[MAX_SUMS];
    while (row < last) {
        size_t num_tiles = quotient_up(last - row, (size_t)level->num_rows);
        size_t count = quotient_up(last - row, num_tiles); /* 7 rows are 4 and 3, not 6 and 1 */
        level->sum(count, job->whole + row * job->stride, job->stride, panel, product->start + first,
                   job->num_groups, sums);
        for (size_t r = 0; r < count; r++, row++)
            level->scale(sums + (size_t)level->panel * r, width, product->scales + first, job->row_scales[row], bias,
                         product->out + row * product->num_outputs + first);
    }
}

static void multiply_part(const void *data, size_t part) {
    const Job *job = data;
    size_t row = part / job->parts_across * job->block_rows;
    size_t first = part % job->parts_across * PART_OUTPUTS;
    size_t last = smaller(job->product->num_outputs, first + PART_OUTPUTS);
    for (; first < last; first += (size_t)job->level->panel)
        multiply_panel(job, first, row, smaller(job->product->num_rows, row + job->block_rows));
}

/* Nonzero where there is no memory for the rounded rows. */
static int multiply_rows(const Product *product, const Level *level, Parallel parallel, unsigned num_threads) {
    Job job = {.product = product, .level = level};
    job.num_groups = quotient_up(product->num_inputs, 4);
    job.stride = 64 * (quotient_up(product->num_inputs, 64) | 1); /* odd: rows lie in different sets of a cache */
    job.parts_across = quotient_up(product->num_outputs, PART_OUTPUTS);
    job.block_rows = ROWS_512 * (1 + BLOCK_BYTES / (ROWS_512 * job.stride));
    size_t num_blocks = quotient_up(product->num_rows, job.block_rows);
    job.row_scales = malloc(product->num_rows * (sizeof(float) + job.stride));
    if (!job.row_scales)
        return 1;
    job.whole = (uint8_t *)(job.row_scales + product->num_rows);
    run_parts(round_block, &job, num_blocks, parallel, num_threads);
    run_parts(multiply_part, &job, num_blocks * job.parts_across, parallel, num_threads);
    free(job.row_scales);
    return 0;
}
#endif

/* ---- What Python sees. ---- */

static PyObject *levels(PyObject *module, PyObject *nothing) {
    (void)module, (void)nothing;
    PyObject *names = PyList_New(0);
#if HAS_KERNELS
    const Level *level;
    for (int number = 0; names && (level = known_level(number)); number++) {
        PyObject *described = Py_BuildValue("(sii)", level->name, level->max_zero, level->panel);
        if (!described || PyList_Append(names, described) < 0)
            Py_CLEAR(names);
        Py_XDECREF(described);
    }
#endif
    return names;
}

#define NUM_ARGUMENTS 14

static PyObject *multiply(PyObject *module, PyObject *const *given, Py_ssize_t num_given) {
    (void)module;
    size_t numbers[NUM_ARGUMENTS];
    if (!read_numbers(given, num_given, numbers, NUM_ARGUMENTS))
        return NULL;
#if HAS_KERNELS
    const Level *level = numbers[0] < 16 ? known_level((int)numbers[0]) : NULL;
    if (!level)
        return PyErr_Format(PyExc_ValueError, "this processor has no level %zu", numbers[0]);
    Product product = {
        .states = (const float *)numbers[3],
        .num_rows = numbers[4],
        .num_inputs = numbers[5],
        .packed = (const int8_t *)numbers[6],
        .start = (const int32_t *)numbers[7],
        .scales = (const float *)numbers[8],
        .bias = (const float *)numbers[9],
        .num_outputs = numbers[10],
        .largest = (float)numbers[11],
        .zero = (int)numbers[12],
        .out = (float *)numbers[13],
    };
    if (!product.num_rows || !product.num_inputs || !product.num_outputs)
        return PyErr_Format(PyExc_ValueError, "there is nothing to multiply");
    if (numbers[12] > (size_t)level->max_zero || numbers[11] >= numbers[12])
        return PyErr_Format(PyExc_ValueError, "%s does not multiply states around %zu", level->name, numbers[12]);
    int has_no_memory;
    Py_BEGIN_ALLOW_THREADS
    has_no_memory = multiply_rows(&product, level, (Parallel)numbers[1], (unsigned)numbers[2]);
    Py_END_ALLOW_THREADS
    if (has_no_memory)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
#else
    return PyErr_Format(PyExc_ValueError, "this build has no level");
#endif
}

static PyMethodDef methods[] = {
    {"levels", levels, METH_NOARGS,
     "What this processor can do, the fastest first: (name, largest zero point, outputs of a panel)."},
    {"multiply", (PyCFunction)(void (*)(void))multiply, METH_FASTCALL,
     "multiply(level, parallel, num_threads, states, num_rows, num_inputs, packed, start, scales, bias, num_outputs, "
     "largest, zero, out): addresses and sizes, all checked by the caller. An address of nothing is 0."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_int8", "Rounds, multiplies and scales in one call.", 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__int8(void) { return PyModuleDef_Init(&definition); }
