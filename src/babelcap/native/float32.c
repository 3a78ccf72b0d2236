/* A few rows of float32 states times a weight as it lies in memory:
 *
 *     out[r][n] = sum_k states[r][k] weight[n][k] + bias[n]
 *
 * With the few rows of a step of decoding this is reading the weight, and libraries for products of many rows read it
 * at half of what memory gives: they copy it into tiles first, or have it copied once and for all. Here a tile of
 * WEIGHTS rows of the weight is multiplied by ROWS rows of states in registers while the processor is told to fetch
 * the tile that comes some tiles later. Nothing is copied.
 *
 * The order of every sum is fixed by the number of inputs alone: lanes of WIDTH partial sums over blocks of
 * BLOCK_INPUTS, each added up in the same way. So a row's results depend neither on the rows beside it nor on the
 * number of threads. float32.py checks all that is given.
 */
#include "parts.h"

#define BLOCK_INPUTS 1024 /* of a tile: 24 KiB of a weight, which stay in the first cache while the rows go by */
#define TILES_AHEAD 4     /* that are being fetched */
#define PARTS_A_THREAD 4  /* so that one that is held up does not hold up the others */

#if HAS_KERNELS
#define AVX512 FLOATS_512

typedef struct {
    const float *states; /* [num_rows][num_inputs] */
    const float *weight; /* [num_outputs][num_inputs] */
    const float *bias;   /* or NULL */
    float *out;          /* [num_rows][num_outputs] */
    size_t num_rows, num_inputs, num_outputs;
} Product;

/* ---- Lanes: what a level adds at once. ---- */

INLINE AVX2 float add_up_4(__m128 lanes) {
    lanes = _mm_add_ps(lanes, _mm_movehl_ps(lanes, lanes));
    return _mm_cvtss_f32(_mm_add_ss(lanes, _mm_shuffle_ps(lanes, lanes, 1)));
}

INLINE AVX2 float add_up_8(__m256 lanes) {
    return add_up_4(_mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps(lanes, 1)));
}

INLINE AVX512 float add_up_16(__m512 lanes) {
    return add_up_8(_mm256_add_ps(_mm512_castps512_ps256(lanes), _mm512_extractf32x8_ps(lanes, 1)));
}

/* The first `count` of the lanes; the others are 0, and the memory behind them is not touched. */
INLINE AVX512 __m512 some_of_16(const float *from, size_t count) {
    return _mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), from);
}

INLINE AVX2 __m256 some_of_8(const float *from, size_t count) {
    __m256i places = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_maskload_ps(from, _mm256_cmpgt_epi32(_mm256_set1_epi32((int)count), places));
}

/* ---- A tile: `num_weights` rows of the weight by `num_rows` rows of states, over the inputs of a block. Both are
 * constants where it is inlined, so that sums are registers. What is added to `out` is a block's part of the sums. ---- */

#define TILE(NAME, TARGET, VECTOR, WIDTH, WEIGHTS, ROWS, ZERO, LOAD, SOME, ADD, ADD_UP)                               \
    INLINE TARGET void NAME(int num_weights, int num_rows, const float *states, const float *weight, size_t stride,   \
                            size_t num_inputs, const char *later, float *out, size_t out_stride) {                    \
        VECTOR sums[ROWS][WEIGHTS], of_weights[WEIGHTS];                                                              \
        size_t k = 0, left = num_inputs % WIDTH;                                                                      \
        UNROLL for (int r = 0; r < num_rows; r++)                                                                     \
            UNROLL for (int w = 0; w < num_weights; w++)                                                              \
                sums[r][w] = ZERO();                                                                                  \
        for (; k + WIDTH <= num_inputs; k += WIDTH) {                                                                 \
            _mm_prefetch(later + k * sizeof(float), _MM_HINT_T1);                                                     \
            UNROLL for (int w = 0; w < num_weights; w++)                                                              \
                of_weights[w] = LOAD(weight + (size_t)w * stride + k);                                                \
            UNROLL for (int r = 0; r < num_rows; r++) {                                                               \
                VECTOR of_states = LOAD(states + (size_t)r * stride + k);                                             \
                UNROLL for (int w = 0; w < num_weights; w++)                                                          \
                    sums[r][w] = ADD(of_states, of_weights[w], sums[r][w]);                                           \
            }                                                                                                         \
        }                                                                                                             \
        if (left)                                                                                                     \
            UNROLL for (int r = 0; r < num_rows; r++)                                                                 \
                UNROLL for (int w = 0; w < num_weights; w++)                                                          \
                    sums[r][w] = ADD(SOME(states + (size_t)r * stride + k, left),                                     \
                                     SOME(weight + (size_t)w * stride + k, left), sums[r][w]);                        \
        UNROLL for (int r = 0; r < num_rows; r++)                                                                     \
            UNROLL for (int w = 0; w < num_weights; w++)                                                              \
                out[(size_t)r * out_stride + (size_t)w] += ADD_UP(sums[r][w]);                                        \
    }

#define WEIGHTS_512 6 /* with 4 rows, 24 registers of sums, 6 of weights and one of states: 31 of 32 */
#define WEIGHTS_256 3 /* with 4 rows, 12, 3 and one: all 16 */
#define ROWS 4
TILE(tile_512, AVX512, __m512, 16, WEIGHTS_512, ROWS, _mm512_setzero_ps, _mm512_loadu_ps, some_of_16, _mm512_fmadd_ps,
     add_up_16)
TILE(tile_256, AVX2, __m256, 8, WEIGHTS_256, ROWS, _mm256_setzero_ps, _mm256_loadu_ps, some_of_8, _mm256_fmadd_ps,
     add_up_8)

/* ---- A level: what a processor can do. ---- */

typedef struct {
    size_t num_weights; /* of a whole tile; what is left is multiplied row by row, in the same order */
    void (*tile)(int is_whole, size_t num_rows, const float *states, const float *weight, size_t stride,
                 size_t num_inputs, const char *later, float *out, size_t out_stride);
} Level;

#define CASE(TILE, WEIGHTS, NUM_ROWS)                                                                                 \
    case NUM_ROWS:                                                                                                    \
        if (is_whole)                                                                                                 \
            TILE(WEIGHTS, NUM_ROWS, states, weight, stride, num_inputs, later, out, out_stride);                      \
        else                                                                                                          \
            TILE(1, NUM_ROWS, states, weight, stride, num_inputs, later, out, out_stride);                            \
        break;
#define LEVEL(NAME, TARGET, TILE, WEIGHTS)                                                                            \
    static TARGET void NAME##_tile(int is_whole, size_t num_rows, const float *states, const float *weight,           \
                                   size_t stride, size_t num_inputs, const char *later, float *out,                   \
                                   size_t out_stride) {                                                               \
        switch (num_rows) {                                                                                           \
            CASE(TILE, WEIGHTS, 1) CASE(TILE, WEIGHTS, 2) CASE(TILE, WEIGHTS, 3) CASE(TILE, WEIGHTS, 4)               \
        default: break;                                                                                               \
        }                                                                                                             \
    }                                                                                                                 \
    static const Level NAME = {WEIGHTS, NAME##_tile};

LEVEL(avx512, AVX512, tile_512, WEIGHTS_512)
LEVEL(avx2, AVX2, tile_256, WEIGHTS_256)

static const Level *const LEVELS[] = {NULL, &avx512, &avx2}; /* by FloatLevel */

/* ---- The whole product, in parts of the outputs that threads take one by one. ---- */

typedef struct {
    const Product *product;
    const Level *level;
    size_t part_outputs;
} Job;

/* One tile for all rows of states, block by block of the inputs: what all rows need stays in the first cache. */
static void multiply_tile(const Job *job, size_t first, size_t num_weights) {
    const Product *product = job->product;
    const Level *level = job->level;
    size_t stride = product->num_inputs, num_groups = quotient_up(product->num_rows, ROWS);
    const float *weight = product->weight + first * stride;
    for (size_t row = 0; row < product->num_rows; row++)
        for (size_t w = 0; w < num_weights; w++)
            product->out[row * product->num_outputs + first + w] = product->bias ? product->bias[first + w] : 0.0f;
    for (size_t k = 0; k < stride; k += BLOCK_INPUTS) {
        size_t num_inputs = smaller(BLOCK_INPUTS, stride - k), row = 0;
        for (size_t group = 0; group < num_groups; group++) {
            size_t count = quotient_up(product->num_rows - row, num_groups - group); /* 5 rows are 3 and 2 */
            /* Each group of rows fetches another row of the later tile. A fetch beyond the end is no access. */
            size_t fetched = (TILES_AHEAD * level->num_weights + group % level->num_weights) * stride + k;
            level->tile(num_weights == level->num_weights, count, product->states + row * stride + k, weight + k,
                        stride, num_inputs, (const char *)((uintptr_t)weight + fetched * sizeof(float)),
                        product->out + row * product->num_outputs + first, product->num_outputs);
            row += count;
        }
    }
}

static void multiply_part(const void *data, size_t part) {
    const Job *job = data;
    size_t first = part * job->part_outputs, num_weights = job->level->num_weights;
    size_t last = smaller(job->product->num_outputs, first + job->part_outputs);
    for (; first + num_weights <= last; first += num_weights)
        multiply_tile(job, first, num_weights);
    for (; first < last; first++)
        multiply_tile(job, first, 1);
}

static void multiply_rows(const Product *product, const Level *level, Parallel parallel, unsigned num_threads) {
    size_t num_tiles = quotient_up(product->num_outputs, level->num_weights);
    size_t wanted_parts = num_threads > 1 ? num_threads * PARTS_A_THREAD : 1;
    Job job = {product, level, level->num_weights * quotient_up(num_tiles, wanted_parts)};
    run_parts(multiply_part, &job, quotient_up(product->num_outputs, job.part_outputs), parallel, num_threads);
}
#endif

/* ---- What Python sees. ---- */

#define NUM_ARGUMENTS 10

static PyObject *multiply(PyObject *module, PyObject *const *given, Py_ssize_t num_given) {
    (void)module;
    size_t numbers[NUM_ARGUMENTS];
    if (!read_numbers(given, num_given, numbers, NUM_ARGUMENTS))
        return NULL;
#if HAS_KERNELS
    const Level *level = LEVELS[float_level(numbers[0])];
    if (!level)
        return PyErr_Format(PyExc_ValueError, "this processor has no level %zu", numbers[0]);
    Product product = {
        .states = (const float *)numbers[3],
        .num_rows = numbers[4],
        .num_inputs = numbers[5],
        .weight = (const float *)numbers[6],
        .bias = (const float *)numbers[7],
        .num_outputs = numbers[8],
        .out = (float *)numbers[9],
    };
    if (!product.num_rows || !product.num_inputs || !product.num_outputs)
        return PyErr_Format(PyExc_ValueError, "there is nothing to multiply");
    Py_BEGIN_ALLOW_THREADS
    multiply_rows(&product, level, (Parallel)numbers[1], (unsigned)numbers[2]);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
#else
    return PyErr_Format(PyExc_ValueError, "this build has no level");
#endif
}

static PyMethodDef methods[] = {
    {"levels", float_levels, METH_NOARGS, "The names of what this processor can do, the fastest first."},
    {"multiply", (PyCFunction)(void (*)(void))multiply, METH_FASTCALL,
     "multiply(level, parallel, num_threads, states, num_rows, num_inputs, weight, bias, num_outputs, out): addresses "
     "and sizes, all checked by the caller. An address of nothing is 0."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_float32", "Multiplies a few rows by a weight as it lies in memory.", 0, methods, NULL, NULL,
    NULL, NULL,
};

PyMODINIT_FUNC PyInit__float32(void) { return PyModuleDef_Init(&definition); }
