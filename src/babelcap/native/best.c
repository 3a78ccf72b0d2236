/* The best of each row of logits, and what their probabilities are relative to, in one call while they are in the cache:
 *
 *     best[row]  the `number` largest logits so far, the largest first, with their places
 *     sums[row]  sum_j exp(logits[row][j] - best[row][0]) so far
 *
 * torch needs a dozen calls for this, each of which reads the logits or a part of them once more. Logits come in chunks
 * of a vocabulary; what was found so far is handed over and goes on. Of equal logits the first is kept.
 *
 * Sums are in LANES partial sums of floats for each chunk, added up in one order, and in double from chunk to chunk: every
 * level gives the same bits, and a row's results depend neither on the rows beside it nor on the number of threads.
 * best.py checks all that is given.
 */
#include "parts.h"

#include <string.h>

#define LANES 64 /* logits that are looked at at once: four registers of 16, or eight of 8 */

typedef struct {
    const float *logits; /* [num_rows][width] */
    float *best;         /* [num_rows][number]; the first is not a number where a logit was none */
    int64_t *places;     /* [num_rows][number] */
    double *sums;        /* [num_rows], or NULL where none are wanted */
    size_t num_rows, width, start, number;
} Look;

#if HAS_KERNELS
#define NOTHING (-__builtin_inff()) /* the logit of a token that must not follow */

/* Plain loops over LANES values, which the compiler turns into vectors of each level. Nonzero where one is larger, or
 * not a number. */
INLINE int has_larger(const float *logits, float least) {
    int found = 0;
    for (int j = 0; j < LANES; j++)
        found |= !(logits[j] <= least);
    return found;
}

/* exp(x) = 2^n exp(r) with r = x - n ln 2 between -ln 2 / 2 and ln 2 / 2, and exp(r) as the first eight terms of its
 * series, which leave 6e-9 of it out. Where x is below -87, exp(-87), which a sum beside exp(0) does not feel. */
INLINE float exponential(float x) {
    x = x > -87.0f ? x : -87.0f;
    float n = x * 0x1.715476p+0f + 0x1.8p23f - 0x1.8p23f; /* rounded: floats that large have nothing behind the point */
    float r = __builtin_fmaf(n, -0x1.62e4p-1f, x); /* ln 2 in two parts; the first has few digits, so that this is exact */
    r = __builtin_fmaf(n, -0x1.7f7d1cp-20f, r);
    float series = 1.0f / 5040, power;
    series = __builtin_fmaf(series, r, 1.0f / 720);
    series = __builtin_fmaf(series, r, 1.0f / 120);
    series = __builtin_fmaf(series, r, 1.0f / 24);
    series = __builtin_fmaf(series, r, 1.0f / 6);
    series = __builtin_fmaf(series, r, 0.5f);
    series = __builtin_fmaf(series, r, 1.0f);
    series = __builtin_fmaf(series, r, 1.0f);
    uint32_t bits = ((uint32_t)(int32_t)n + 127u) << 23;
    memcpy(&power, &bits, sizeof power);
    return series * power;
}

INLINE void add_exponentials(const float *logits, float largest, float *sums) {
    for (int j = 0; j < LANES; j++)
        sums[j] += exponential(logits[j] - largest);
}

static void insert(const Look *look, size_t row, float logit, size_t place) {
    float *best = look->best + row * look->number;
    int64_t *places = look->places + row * look->number;
    size_t at = look->number - 1;
    for (; at > 0 && best[at - 1] < logit; at--) {
        best[at] = best[at - 1];
        places[at] = places[at - 1];
    }
    best[at] = logit;
    places[at] = (int64_t)place;
}

static void look_through(const Look *look, size_t row, size_t first, size_t count) {
    const float *logits = look->logits + row * look->width, *least = look->best + (row + 1) * look->number - 1;
    for (size_t j = first; j < first + count; j++) {
        if (logits[j] > *least)
            insert(look, row, logits[j], look->start + j);
        else if (logits[j] != logits[j])
            look->best[row * look->number] = logits[j];
    }
}

INLINE void look_at_row(const Look *look, size_t row) {
    const float *logits = look->logits + row * look->width, *best = look->best + row * look->number;
    float last[LANES], sums[LANES] = {0}, before = best[0];
    size_t whole = look->width / LANES * LANES, left = look->width - whole;
    for (size_t j = 0; j < whole; j += LANES)
        if (has_larger(logits + j, best[look->number - 1]))
            look_through(look, row, j, LANES);
    look_through(look, row, whole, left);
    if (!look->sums || best[0] == NOTHING)
        return;
    for (size_t j = 0; j < whole; j += LANES)
        add_exponentials(logits + j, best[0], sums);
    if (left) {
        for (size_t j = 0; j < LANES; j++)
            last[j] = j < left ? logits[whole + j] : NOTHING;
        add_exponentials(last, best[0], sums);
    }
    double sum = before == NOTHING ? 0.0 : look->sums[row] * (double)exponential(before - best[0]);
    for (int j = 0; j < LANES; j++)
        sum += (double)sums[j];
    look->sums[row] = sum;
}

static FLOATS_512 void look_at_row_512(const void *look, size_t row) { look_at_row(look, row); }
static AVX2 void look_at_row_256(const void *look, size_t row) { look_at_row(look, row); }

static void (*const LEVELS[])(const void *, size_t) = {NULL, look_at_row_512, look_at_row_256}; /* by FloatLevel */
#endif

#define NUM_ARGUMENTS 11

static PyObject *look(PyObject *module, PyObject *const *given, Py_ssize_t num_given) {
    (void)module;
    size_t numbers[NUM_ARGUMENTS];
    if (!read_numbers(given, num_given, numbers, NUM_ARGUMENTS))
        return NULL;
#if HAS_KERNELS
    FloatLevel level = float_level(numbers[0]);
    if (level == NO_LEVEL)
        return PyErr_Format(PyExc_ValueError, "this processor has no level %zu", numbers[0]);
    Look wanted = {
        .logits = (const float *)numbers[3],
        .num_rows = numbers[4],
        .width = numbers[5],
        .start = numbers[6],
        .number = numbers[7],
        .best = (float *)numbers[8],
        .places = (int64_t *)numbers[9],
        .sums = (double *)numbers[10],
    };
    if (!wanted.num_rows || !wanted.width || !wanted.number)
        return PyErr_Format(PyExc_ValueError, "there is nothing to look at");
    Py_BEGIN_ALLOW_THREADS
    run_parts(LEVELS[level], &wanted, wanted.num_rows, (Parallel)numbers[1], (unsigned)numbers[2]);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
#else
    return PyErr_Format(PyExc_ValueError, "this build has no level");
#endif
}

static PyMethodDef methods[] = {
    {"levels", float_levels, METH_NOARGS, "The names of what this processor can do, the fastest first."},
    {"look", (PyCFunction)(void (*)(void))look, METH_FASTCALL,
     "look(level, parallel, num_threads, logits, num_rows, width, start, number, best, places, sums): addresses and "
     "sizes, all checked by the caller. An address of nothing is 0."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_best", "The best of rows of logits, and their sums.", 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__best(void) { return PyModuleDef_Init(&definition); }
