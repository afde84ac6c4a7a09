/* `seen.PythonSeenSet` in C: the keys of all pages ever seen, each with 16 more bits that tell URLs with one key apart.
 *
 * A set of Python's integers takes some ninety bytes a key, and each question costs two misses of the cache: the
 * table's and the integer's. Here a new key takes ten bytes in an open table of at most a few megabytes. A settled one
 * takes eight in a sorted array: its highest 16 bits are the number of its bucket, so that its check bits have their
 * place. A test compares both on random work. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { AT_FIRST = 1024, FEW_PART = 16, CHECK_BITS = 16, BUCKETS = 1 << CHECK_BITS };
enum { KNOWN, NEW, TAKEN, FAILED = -1 };

/* Keys in order, bucket by bucket: an entry is a key without its highest bits, and then its check bits. */
typedef struct {
    uint64_t *entries;
    Py_ssize_t *starts; /* of each bucket, and the end; NULL while there are none */
    Py_ssize_t count;
} Settled;

typedef struct {
    PyObject_HEAD
    Settled settled;
    int64_t *table; /* an open one: 0 is an empty place, and the key 0 is kept apart */
    uint16_t *checks; /* of the keys in it */
    size_t places, used;
    int has_zero;
    uint16_t zero_check;
    Py_ssize_t limit;
} Seen;

/* Odd, and drawn by each process: URLs whose keys share a place in the table would be searched in quadratic time. */
static uint64_t spread = UINT64_C(0x9E3779B97F4A7C15);

static inline size_t place_of(int64_t key, size_t places)
{
    return (size_t)((uint64_t)key * spread >> __builtin_clzll(places - 1));
}

static inline Py_ssize_t recent_count(const Seen *self) { return (Py_ssize_t)self->used + self->has_zero; }

static inline size_t bucket_of(int64_t key) { return (size_t)((uint64_t)key >> (64 - CHECK_BITS)); }

static inline uint64_t entry_of(int64_t key, uint16_t check) { return (uint64_t)key << CHECK_BITS | check; }

/* What a known key with these check bits says of a page with those. 0: the bits are not known. */
static inline int compared(uint16_t has, uint16_t asked) { return has == asked || !has || !asked ? KNOWN : TAKEN; }

static int in_recent(const Seen *self, int64_t key, uint16_t check)
{
    if (key == 0)
        return self->has_zero ? compared(self->zero_check, check) : NEW;
    size_t place = place_of(key, self->places);
    for (; self->table[place]; place = (place + 1) & (self->places - 1))
        if (self->table[place] == key)
            return compared(self->checks[place], check);
    return NEW;
}

static int in_settled(const Settled *settled, int64_t key, uint16_t check)
{
    if (settled->starts == NULL)
        return NEW;
    uint64_t wanted = entry_of(key, 0);
    Py_ssize_t from = settled->starts[bucket_of(key)], end = settled->starts[bucket_of(key) + 1], count = end - from;
    while (count > 0) {
        Py_ssize_t half = count / 2;
        if (settled->entries[from + half] < wanted) {
            from += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    if (from == end || settled->entries[from] >> CHECK_BITS != wanted >> CHECK_BITS)
        return NEW;
    return compared((uint16_t)settled->entries[from], check);
}

static void enter(int64_t *table, uint16_t *checks, size_t places, int64_t key, uint16_t check)
{
    size_t place = place_of(key, places);
    while (table[place])
        place = (place + 1) & (places - 1);
    table[place] = key;
    checks[place] = check;
}

static int grow(Seen *self)
{
    size_t places = self->places * 2;
    int64_t *table = PyMem_Calloc(places, sizeof *table);
    uint16_t *checks = PyMem_Calloc(places, sizeof *checks);
    if (table == NULL || checks == NULL) {
        PyMem_Free(table);
        PyMem_Free(checks);
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < self->places; i++)
        if (self->table[i])
            enter(table, checks, places, self->table[i], self->checks[i]);
    PyMem_Free(self->table);
    PyMem_Free(self->checks);
    self->table = table;
    self->checks = checks;
    self->places = places;
    return 0;
}

/* Adds a key that is new: KNOWN, NEW, or TAKEN if it is that of another page. */
static int put(Seen *self, int64_t key, uint16_t check)
{
    int found = in_recent(self, key, check);
    if (found == NEW)
        found = in_settled(&self->settled, key, check);
    if (found != NEW)
        return found;
    if (key == 0) {
        self->has_zero = 1;
        self->zero_check = check;
        return NEW;
    }
    if ((self->used + 1) * 3 > self->places * 2 && grow(self) < 0)
        return FAILED;
    enter(self->table, self->checks, self->places, key, check);
    self->used++;
    return NEW;
}

static int by_size(const void *one, const void *other)
{
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

static void release(Settled *settled)
{
    PyMem_Free(settled->entries);
    PyMem_Free(settled->starts);
    *settled = (Settled){NULL, NULL, 0};
}

/* Keys put into their buckets, in order, those left out that the set has, or that have come before. */
static int sorted_out(const Settled *known, const int64_t *keys, const uint16_t *checks, Py_ssize_t count, Settled *made)
{
    made->entries = PyMem_Malloc((size_t)(count ? count : 1) * sizeof *made->entries);
    made->starts = PyMem_Calloc(BUCKETS + 1, sizeof *made->starts);
    if (made->entries == NULL || made->starts == NULL) {
        release(made);
        PyErr_NoMemory();
        return -1;
    }
    /* Each start is counted one place further on, and moves to its own as its bucket fills. */
    Py_ssize_t *starts = made->starts, sum = 0, kept = 0;
    for (Py_ssize_t i = 0; i < count; i++)
        starts[bucket_of(keys[i])]++;
    for (size_t bucket = 0; bucket <= BUCKETS; bucket++) {
        Py_ssize_t length = starts[bucket];
        starts[bucket] = sum;
        sum += length;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        made->entries[starts[bucket_of(keys[i])]++] = entry_of(keys[i], checks == NULL ? 0 : checks[i]);
    for (size_t bucket = BUCKETS; bucket > 0; bucket--)
        starts[bucket] = starts[bucket - 1];
    starts[0] = 0;
    for (size_t bucket = 0; bucket < BUCKETS; bucket++) {
        Py_ssize_t begin = starts[bucket], end = starts[bucket + 1], first = kept;
        qsort(made->entries + begin, (size_t)(end - begin), sizeof(uint64_t), by_size);
        starts[bucket] = first;
        for (Py_ssize_t at = begin; at < end; at++) {
            uint64_t entry = made->entries[at], key = (uint64_t)bucket << (64 - CHECK_BITS) | entry >> CHECK_BITS;
            if ((kept > first && made->entries[kept - 1] >> CHECK_BITS == entry >> CHECK_BITS)
                || in_settled(known, (int64_t)key, 0) != NEW)
                continue;
            made->entries[kept++] = entry;
        }
    }
    starts[BUCKETS] = made->count = kept;
    return 0;
}

/* Puts keys that the set does not have among its own, from behind; `fresh` is used up. */
static int settle(Settled *settled, Settled *fresh)
{
    if (settled->starts == NULL || fresh->count == 0) {
        if (settled->starts == NULL) {
            uint64_t *entries = PyMem_Realloc(fresh->entries, (size_t)(fresh->count ? fresh->count : 1) * sizeof *entries);
            *settled = (Settled){entries == NULL ? fresh->entries : entries, fresh->starts, fresh->count};
            *fresh = (Settled){NULL, NULL, 0};
        }
        release(fresh);
        return 0;
    }
    Py_ssize_t old = settled->count, new = fresh->count, at = old + new;
    uint64_t *entries = PyMem_Realloc(settled->entries, (size_t)at * sizeof *entries);
    if (entries == NULL) {
        release(fresh);
        PyErr_NoMemory();
        return -1;
    }
    settled->entries = entries;
    settled->count = at;
    for (size_t bucket = BUCKETS; bucket-- > 0;) {
        Py_ssize_t old_begin = settled->starts[bucket], new_begin = fresh->starts[bucket];
        settled->starts[bucket + 1] = at;
        while (new > new_begin) {
            if (old > old_begin && entries[old - 1] > fresh->entries[new - 1])
                entries[--at] = entries[--old];
            else
                entries[--at] = fresh->entries[--new];
        }
        memmove(entries + at - (old - old_begin), entries + old_begin, (size_t)(old - old_begin) * sizeof *entries);
        at -= old - old_begin;
        old = old_begin;
    }
    release(fresh);
    return 0;
}

/* `fresh`: as many keys as the set has not settled yet, or any others. */
static int add_sorted(Seen *self, const int64_t *keys, const uint16_t *checks, Py_ssize_t count)
{
    Settled fresh = {NULL, NULL, 0};
    if (count == 0)
        return 0;
    return sorted_out(&self->settled, keys, checks, count, &fresh) < 0 ? -1 : settle(&self->settled, &fresh);
}

static int merge(Seen *self)
{
    Py_ssize_t count = 0;
    /* The keys of the table, moved together: nothing is lost if there is no memory, for the table is then filled again. */
    int64_t *keys = PyMem_Malloc((size_t)(recent_count(self) + 1) * sizeof *keys);
    uint16_t *checks = PyMem_Malloc((size_t)(recent_count(self) + 1) * sizeof *checks);
    int failed = keys == NULL || checks == NULL;
    if (failed)
        PyErr_NoMemory();
    if (!failed && self->has_zero)
        keys[count] = 0, checks[count++] = self->zero_check;
    for (size_t i = 0; i < self->places && !failed; i++)
        if (self->table[i])
            keys[count] = self->table[i], checks[count++] = self->checks[i];
    failed = failed || add_sorted(self, keys, checks, count) < 0;
    PyMem_Free(keys);
    PyMem_Free(checks);
    if (failed)
        return -1;
    memset(self->table, 0, self->places * sizeof *self->table);
    self->used = 0;
    self->has_zero = 0;
    return 0;
}

static int merge_if_full(Seen *self) { return recent_count(self) > self->limit ? merge(self) : 0; }

static int as_key(PyObject *object, int64_t *key)
{
    *key = PyLong_AsLongLong(object);
    return *key == -1 && PyErr_Occurred() ? -1 : 0;
}

static int as_check(PyObject *object, uint16_t *check)
{
    long number = PyLong_AsLong(object);
    *check = (uint16_t)number;
    return number == -1 && PyErr_Occurred() ? -1 : 0;
}

static PyObject *seen_add(PyObject *object, PyObject *argument)
{
    Seen *self = (Seen *)object;
    int64_t key;
    int found = as_key(argument, &key) < 0 ? FAILED : put(self, key, 0);
    if (found == FAILED || merge_if_full(self) < 0)
        return NULL;
    return PyBool_FromLong(found == NEW);
}

static PyObject *seen_add_all(PyObject *object, PyObject *args)
{
    Seen *self = (Seen *)object;
    PyObject *given, *given_checks = NULL;
    if (!PyArg_ParseTuple(args, "O|O:add_all", &given, &given_checks))
        return NULL;
    PyObject *keys = PySequence_Fast(given, "add_all(keys, checks)");
    PyObject *checks = keys == NULL || given_checks == NULL ? NULL : PySequence_Fast(given_checks, "add_all(keys, checks)");
    if (checks != NULL && PySequence_Fast_GET_SIZE(keys) != PySequence_Fast_GET_SIZE(checks))
        PyErr_SetString(PyExc_ValueError, "as many keys as check bits");
    PyObject *fresh = PyErr_Occurred() ? NULL : PyList_New(0);
    for (Py_ssize_t at = 0; fresh != NULL && at < PySequence_Fast_GET_SIZE(keys); at++) {
        int64_t key;
        uint16_t check = 0;
        int found = as_key(PySequence_Fast_GET_ITEM(keys, at), &key);
        if (found == 0 && checks != NULL)
            found = as_check(PySequence_Fast_GET_ITEM(checks, at), &check);
        if (found == 0)
            found = put(self, key, check);
        if (found == NEW || found == TAKEN) {
            PyObject *position = PyLong_FromSsize_t(found == NEW ? at : ~at);
            if (position == NULL || PyList_Append(fresh, position) < 0)
                found = FAILED;
            Py_XDECREF(position);
        }
        if (found == FAILED)
            Py_CLEAR(fresh);
    }
    if (fresh != NULL && merge_if_full(self) < 0)
        Py_CLEAR(fresh);
    Py_XDECREF(keys);
    Py_XDECREF(checks);
    return fresh;
}

/* Arrays of keys, and of as many check bits or of none. */
typedef struct {
    Py_buffer keys, checks;
    Py_ssize_t count;
} Arrays;

static int arrays_of(PyObject *keys, PyObject *checks, Arrays *arrays)
{
    if (PyObject_GetBuffer(keys, &arrays->keys, PyBUF_C_CONTIGUOUS) < 0)
        return -1;
    if (PyObject_GetBuffer(checks, &arrays->checks, PyBUF_C_CONTIGUOUS) < 0) {
        PyBuffer_Release(&arrays->keys);
        return -1;
    }
    arrays->count = arrays->keys.len / (Py_ssize_t)sizeof(int64_t);
    if (!arrays->checks.len || arrays->checks.len == arrays->count * (Py_ssize_t)sizeof(uint16_t))
        return 0;
    PyErr_SetString(PyExc_ValueError, "as many keys as check bits, or no check bits");
    PyBuffer_Release(&arrays->keys);
    PyBuffer_Release(&arrays->checks);
    return -1;
}

static const uint16_t *checks_of(const Arrays *arrays) { return arrays->checks.len ? arrays->checks.buf : NULL; }

static void release_arrays(Arrays *arrays)
{
    PyBuffer_Release(&arrays->keys);
    PyBuffer_Release(&arrays->checks);
}

static PyObject *seen_add_many(PyObject *object, PyObject *args)
{
    Seen *self = (Seen *)object;
    PyObject *keys, *checks;
    Arrays arrays;
    if (!PyArg_ParseTuple(args, "OO:add_many", &keys, &checks) || arrays_of(keys, checks, &arrays) < 0)
        return NULL;
    int failed = 0;
    const int64_t *given = arrays.keys.buf;
    const uint16_t *given_checks = checks_of(&arrays);
    if (arrays.count <= self->limit / FEW_PART) {
        for (Py_ssize_t at = 0; at < arrays.count && !failed; at++)
            failed = put(self, given[at], given_checks == NULL ? 0 : given_checks[at]) == FAILED;
        failed = failed || merge_if_full(self) < 0;
    } else {
        failed = merge(self) < 0 || add_sorted(self, given, given_checks, arrays.count) < 0;
    }
    release_arrays(&arrays);
    return failed ? NULL : Py_NewRef(Py_None);
}

static int seen_contains(PyObject *object, PyObject *argument)
{
    Seen *self = (Seen *)object;
    int64_t key;
    if (as_key(argument, &key) < 0)
        return -1;
    return in_recent(self, key, 0) != NEW || in_settled(&self->settled, key, 0) != NEW;
}

static Py_ssize_t seen_length(PyObject *object)
{
    Seen *self = (Seen *)object;
    return self->settled.count + recent_count(self);
}

static void seen_free(PyObject *object)
{
    release(&((Seen *)object)->settled);
    PyMem_Free(((Seen *)object)->table);
    PyMem_Free(((Seen *)object)->checks);
    Py_TYPE(object)->tp_free(object);
}

static PyObject *seen_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    PyObject *keys, *checks;
    Py_ssize_t limit;
    Arrays arrays;
    if (!PyArg_ParseTuple(args, "OOn:SeenSet", &keys, &checks, &limit))
        return NULL;
    Seen *self = (Seen *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->limit = limit;
    self->places = AT_FIRST;
    self->table = PyMem_Calloc(AT_FIRST, sizeof *self->table);
    self->checks = PyMem_Calloc(AT_FIRST, sizeof *self->checks);
    if (self->table == NULL || self->checks == NULL)
        PyErr_NoMemory();
    if (PyErr_Occurred() || arrays_of(keys, checks, &arrays) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    int failed = add_sorted(self, arrays.keys.buf, checks_of(&arrays), arrays.count);
    release_arrays(&arrays);
    if (failed)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static PyMethodDef seen_methods[] = {
    {"add", seen_add, METH_O, "add(key) -> whether it is new"},
    {"add_all", seen_add_all, METH_VARARGS,
     "add_all(keys, check bits) -> the positions of the new ones, inverted (~) where the key is that of another page"},
    {"add_many", seen_add_many, METH_VARARGS, "add_many(array of keys, array of check bits)"},
    {NULL, NULL, 0, NULL},
};

static PySequenceMethods seen_as_sequence = {.sq_length = seen_length, .sq_contains = seen_contains};

static PyTypeObject seen_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "headway.engine._seen_set.SeenSet",
    .tp_basicsize = sizeof(Seen),
    .tp_dealloc = seen_free,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "The keys of all pages ever seen.",
    .tp_methods = seen_methods,
    .tp_as_sequence = &seen_as_sequence,
    .tp_new = seen_new,
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "headway.engine._seen_set", "The keys of all pages ever seen.", -1, NULL, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__seen_set(void)
{
    if (PyType_Ready(&seen_type) < 0)
        return NULL;
    PyObject *os = PyImport_ImportModule("os");
    PyObject *drawn = os == NULL ? NULL : PyObject_CallMethod(os, "urandom", "n", (Py_ssize_t)sizeof spread);
    Py_XDECREF(os);
    if (drawn == NULL)
        return NULL;
    memcpy(&spread, PyBytes_AS_STRING(drawn), sizeof spread);
    spread |= 1;
    Py_DECREF(drawn);
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && PyModule_AddObjectRef(module, "SeenSet", (PyObject *)&seen_type) < 0)
        Py_CLEAR(module);
    return module;
}
