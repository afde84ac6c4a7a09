/* `seen.PythonSeenSet` in C: the keys of all pages ever seen, as plain numbers.
 *
 * A set of Python's integers takes some ninety bytes a key, and each question costs two misses of the cache: the
 * table's and the integer's. Here a new key takes eight bytes in an open table of at most a few megabytes, and a
 * settled one eight in a sorted array. A test compares both on random work. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { AT_FIRST = 1024, FEW_PART = 16 };

typedef struct {
    PyObject_HEAD
    int64_t *settled; /* in order */
    Py_ssize_t settled_count;
    int64_t *table; /* an open one: 0 is an empty place, and the key 0 is kept apart */
    size_t places, used;
    int has_zero;
    Py_ssize_t limit;
} Seen;

/* Odd, and drawn by each process: URLs whose keys share a place in the table would be searched in quadratic time. */
static uint64_t spread = UINT64_C(0x9E3779B97F4A7C15);

static inline size_t place_of(int64_t key, size_t places)
{
    return (size_t)((uint64_t)key * spread >> __builtin_clzll(places - 1));
}

static inline Py_ssize_t recent_count(const Seen *self) { return (Py_ssize_t)self->used + self->has_zero; }

static int in_recent(const Seen *self, int64_t key)
{
    if (key == 0)
        return self->has_zero;
    size_t place = place_of(key, self->places);
    for (; self->table[place]; place = (place + 1) & (self->places - 1))
        if (self->table[place] == key)
            return 1;
    return 0;
}

/* Where the first key that is not smaller stands. */
static Py_ssize_t settled_place(const Seen *self, int64_t key)
{
    Py_ssize_t from = 0, count = self->settled_count;
    while (count > 0) {
        Py_ssize_t half = count / 2;
        if (self->settled[from + half] < key) {
            from += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    return from;
}

static int in_settled(const Seen *self, int64_t key)
{
    Py_ssize_t place = settled_place(self, key);
    return place < self->settled_count && self->settled[place] == key;
}

static void enter(int64_t *table, size_t places, int64_t key)
{
    size_t place = place_of(key, places);
    while (table[place])
        place = (place + 1) & (places - 1);
    table[place] = key;
}

static int grow(Seen *self)
{
    size_t places = self->places * 2;
    int64_t *table = PyMem_Calloc(places, sizeof(int64_t));
    if (table == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < self->places; i++)
        if (self->table[i])
            enter(table, places, self->table[i]);
    PyMem_Free(self->table);
    self->table = table;
    self->places = places;
    return 0;
}

/* 1 if the key is new, -1 without memory. */
static int put(Seen *self, int64_t key)
{
    if (in_recent(self, key) || in_settled(self, key))
        return 0;
    if (key == 0) {
        self->has_zero = 1;
        return 1;
    }
    if ((self->used + 1) * 3 > self->places * 2 && grow(self) < 0)
        return -1;
    enter(self->table, self->places, key);
    self->used++;
    return 1;
}

static int by_size(const void *one, const void *other)
{
    int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
    return (a > b) - (a < b);
}

/* Sorted keys, none of them settled yet and each once, put among the settled ones from behind. */
static int settle(Seen *self, const int64_t *fresh, Py_ssize_t count)
{
    if (count == 0)
        return 0;
    Py_ssize_t old = self->settled_count - 1, new = count - 1;
    int64_t *settled = PyMem_Realloc(self->settled, (size_t)(self->settled_count + count) * sizeof(int64_t));
    if (settled == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    self->settled = settled;
    self->settled_count += count;
    for (Py_ssize_t at = self->settled_count - 1; new >= 0; at--)
        settled[at] = old >= 0 && settled[old] > fresh[new] ? settled[old--] : fresh[new--];
    return 0;
}

static int merge(Seen *self)
{
    Py_ssize_t count = recent_count(self), at = 0;
    int64_t *fresh = PyMem_Malloc((size_t)(count ? count : 1) * sizeof(int64_t));
    if (fresh == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (self->has_zero)
        fresh[at++] = 0;
    for (size_t i = 0; i < self->places; i++)
        if (self->table[i])
            fresh[at++] = self->table[i];
    qsort(fresh, (size_t)count, sizeof(int64_t), by_size);
    int failed = settle(self, fresh, count);
    PyMem_Free(fresh);
    if (failed)
        return -1;
    memset(self->table, 0, self->places * sizeof(int64_t));
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

static PyObject *seen_add(PyObject *object, PyObject *argument)
{
    Seen *self = (Seen *)object;
    int64_t key;
    int is_new = as_key(argument, &key) < 0 ? -1 : put(self, key);
    if (is_new < 0 || merge_if_full(self) < 0)
        return NULL;
    return PyBool_FromLong(is_new);
}

static PyObject *seen_add_all(PyObject *object, PyObject *argument)
{
    Seen *self = (Seen *)object;
    PyObject *keys = PySequence_Fast(argument, "add_all(keys)");
    PyObject *fresh = keys == NULL ? NULL : PyList_New(0);
    for (Py_ssize_t at = 0; fresh != NULL && at < PySequence_Fast_GET_SIZE(keys); at++) {
        int64_t key;
        int is_new = as_key(PySequence_Fast_GET_ITEM(keys, at), &key) < 0 ? -1 : put(self, key);
        if (is_new > 0) {
            PyObject *position = PyLong_FromSsize_t(at);
            if (position == NULL || PyList_Append(fresh, position) < 0)
                is_new = -1;
            Py_XDECREF(position);
        }
        if (is_new < 0)
            Py_CLEAR(fresh);
    }
    if (fresh != NULL && merge_if_full(self) < 0)
        Py_CLEAR(fresh);
    Py_XDECREF(keys);
    return fresh;
}

/* The numbers of an array of 64 bits each, to be let go of. */
static const int64_t *numbers_of(PyObject *object, Py_buffer *view, Py_ssize_t *count)
{
    if (PyObject_GetBuffer(object, view, PyBUF_C_CONTIGUOUS) < 0)
        return NULL;
    *count = view->len / (Py_ssize_t)sizeof(int64_t);
    return view->buf;
}

static int add_sorted(Seen *self, const int64_t *given, Py_ssize_t count)
{
    int64_t *fresh = PyMem_Malloc((size_t)(count ? count : 1) * sizeof(int64_t));
    if (fresh == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memcpy(fresh, given, (size_t)count * sizeof(int64_t));
    qsort(fresh, (size_t)count, sizeof(int64_t), by_size);
    Py_ssize_t kept = 0;
    for (Py_ssize_t at = 0; at < count; at++)
        if ((at == 0 || fresh[at] != fresh[at - 1]) && !in_settled(self, fresh[at]))
            fresh[kept++] = fresh[at];
    int failed = settle(self, fresh, kept);
    PyMem_Free(fresh);
    return failed;
}

static PyObject *seen_add_many(PyObject *object, PyObject *argument)
{
    Seen *self = (Seen *)object;
    Py_buffer view;
    Py_ssize_t count = 0;
    const int64_t *given = numbers_of(argument, &view, &count);
    if (given == NULL && PyErr_Occurred())
        return NULL;
    int failed = 0;
    if (count <= self->limit / FEW_PART) {
        for (Py_ssize_t at = 0; at < count && !failed; at++)
            failed = put(self, given[at]) < 0;
        failed = failed || merge_if_full(self) < 0;
    } else {
        failed = merge(self) < 0 || add_sorted(self, given, count) < 0;
    }
    PyBuffer_Release(&view);
    return failed ? NULL : Py_NewRef(Py_None);
}

static int seen_contains(PyObject *object, PyObject *argument)
{
    Seen *self = (Seen *)object;
    int64_t key;
    return as_key(argument, &key) < 0 ? -1 : in_recent(self, key) || in_settled(self, key);
}

static Py_ssize_t seen_length(PyObject *object)
{
    Seen *self = (Seen *)object;
    return self->settled_count + recent_count(self);
}

static void seen_free(PyObject *object)
{
    PyMem_Free(((Seen *)object)->settled);
    PyMem_Free(((Seen *)object)->table);
    Py_TYPE(object)->tp_free(object);
}

static PyObject *seen_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    PyObject *keys;
    Py_ssize_t limit, count = 0;
    if (!PyArg_ParseTuple(args, "On:SeenSet", &keys, &limit))
        return NULL;
    Seen *self = (Seen *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->limit = limit;
    self->places = AT_FIRST;
    self->table = PyMem_Calloc(AT_FIRST, sizeof(int64_t));
    Py_buffer view;
    const int64_t *given = self->table == NULL ? NULL : numbers_of(keys, &view, &count);
    if (self->table == NULL)
        PyErr_NoMemory();
    if (PyErr_Occurred()) {
        Py_DECREF(self);
        return NULL;
    }
    int failed = add_sorted(self, given, count);
    PyBuffer_Release(&view);
    if (failed)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static PyMethodDef seen_methods[] = {
    {"add", seen_add, METH_O, "add(key) -> whether it is new"},
    {"add_all", seen_add_all, METH_O, "add_all(keys) -> the positions of the new ones"},
    {"add_many", seen_add_many, METH_O, "add_many(array of keys)"},
    {NULL, NULL, 0, NULL},
};

static PySequenceMethods seen_as_sequence = {.sq_length = seen_length, .sq_contains = seen_contains};

static PyTypeObject seen_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "headway.engine._seen.SeenSet",
    .tp_basicsize = sizeof(Seen),
    .tp_dealloc = seen_free,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "The keys of all pages ever seen.",
    .tp_methods = seen_methods,
    .tp_as_sequence = &seen_as_sequence,
    .tp_new = seen_new,
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "headway.engine._seen", "The keys of all pages ever seen.", -1, NULL, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__seen(void)
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
