/* What the compiled parts share: work cut into parts that threads take one by one, the levels of what multiplies floats,
 * and numbers from Python. */
#ifndef BABELCAP_NATIVE_PARTS_H
#define BABELCAP_NATIVE_PARTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define HAS_KERNELS 1
#include <immintrin.h>
#define UNROLL _Pragma("GCC unroll 16")
#define INLINE static inline __attribute__((always_inline))
#define AVX2 __attribute__((target("avx2,fma")))
#define FLOATS_512 __attribute__((target("avx512f,avx512dq,avx2,fma")))
#else
#define HAS_KERNELS 0
#endif

/* As OpenMP's runtime has it: calls `work(data)` in as many threads, and returns when all are done. */
typedef void (*Parallel)(void (*work)(void *), void *data, unsigned num_threads, unsigned flags);

typedef struct {
    void (*run)(const void *job, size_t part);
    const void *job;
    size_t num_parts;
    size_t next; /* part that no thread has taken: a runtime that gives fewer threads than asked does all the same */
} Parts;

static inline size_t smaller(size_t left, size_t right) { return left < right ? left : right; }

static inline size_t quotient_up(size_t left, size_t right) { return (left + right - 1) / right; }

static inline void take_parts(void *data) {
    Parts *parts = data;
    size_t part;
    while ((part = __atomic_fetch_add(&parts->next, 1, __ATOMIC_RELAXED)) < parts->num_parts)
        parts->run(parts->job, part);
}

static inline void run_parts(void (*run)(const void *, size_t), const void *job, size_t num_parts, Parallel parallel,
                             unsigned num_threads) {
    Parts parts = {.run = run, .job = job, .num_parts = num_parts, .next = 0};
    if (parallel && num_threads > 1 && num_parts > 1)
        parallel(take_parts, &parts, num_threads, 0);
    else
        take_parts(&parts);
}

/* ---- What multiplies floats has two levels; a file has a function for each, named by its width. ---- */

typedef enum { NO_LEVEL, AVX512_LEVEL, AVX2_LEVEL } FloatLevel;
static const char *const FLOAT_LEVEL_NAMES[] = {NULL, "avx512", "avx2"};

/* The levels of this processor, the fastest first; none after the last. */
static inline FloatLevel float_level(size_t number) {
#if HAS_KERNELS
    __builtin_cpu_init();
    int has_fma = __builtin_cpu_supports("fma"), has_avx2 = has_fma && __builtin_cpu_supports("avx2");
    int has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
    if (has_avx512 && number == 0)
        return AVX512_LEVEL;
    if (has_avx2 && number == (size_t)has_avx512)
        return AVX2_LEVEL;
#else
    (void)number;
#endif
    return NO_LEVEL;
}

static inline PyObject *float_levels(PyObject *module, PyObject *nothing) {
    (void)module, (void)nothing;
    PyObject *names = PyList_New(0);
    FloatLevel level;
    for (size_t number = 0; names && (level = float_level(number)) != NO_LEVEL; number++) {
        PyObject *name = PyUnicode_FromString(FLOAT_LEVEL_NAMES[level]);
        if (!name || PyList_Append(names, name) < 0)
            Py_CLEAR(names);
        Py_XDECREF(name);
    }
    return names;
}

/* Addresses and sizes, all checked by the caller: addresses are as wide as sizes where there are kernels. 0 where one
 * is no such number or there are more or fewer; the error is set. */
static inline int read_numbers(PyObject *const *given, Py_ssize_t num_given, size_t *numbers, int num_wanted) {
    if (num_given != num_wanted) {
        PyErr_Format(PyExc_TypeError, "%d numbers are taken, not %zd", num_wanted, num_given);
        return 0;
    }
    for (int i = 0; i < num_wanted; i++) {
        numbers[i] = PyLong_AsSize_t(given[i]);
        if (numbers[i] == (size_t)-1 && PyErr_Occurred())
            return 0;
    }
    return 1;
}

#endif
