/* `site_heap.PythonSiteHeap` in C: the places of the sites in a heap of plain numbers.
 *
 * With tens of thousands of sites, a heap of Python's tuples costs as many misses of the cache as it has levels,
 * times two; here an entry is 32 bytes and four children lie side by side. A test compares both on random work. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { CHILDREN = 4, NOWHERE = -1, MOST = 1 << 30 };

typedef struct {
    double key, then;
    int64_t serial;
    int32_t number;
} Entry;

typedef struct {
    PyObject_HEAD
    Entry *entries;
    int32_t *place_of; /* by number, NOWHERE for those that have none */
    int32_t count, room, numbers;
} Places;

static inline int before(const Entry *a, const Entry *b)
{
    if (a->key != b->key)
        return a->key < b->key;
    if (a->serial != b->serial)
        return a->serial < b->serial;
    return a->number < b->number;
}

static inline void put_at(Places *self, int32_t place, const Entry *entry)
{
    self->entries[place] = *entry;
    self->place_of[entry->number] = place;
}

static void rise(Places *self, int32_t place, Entry entry)
{
    while (place > 0) {
        int32_t parent = (place - 1) / CHILDREN;
        if (!before(&entry, &self->entries[parent]))
            break;
        put_at(self, place, &self->entries[parent]);
        place = parent;
    }
    put_at(self, place, &entry);
}

static void sink(Places *self, int32_t place, Entry entry)
{
    for (;;) {
        int64_t child = (int64_t)place * CHILDREN + 1;
        if (child >= self->count)
            break;
        int64_t end = child + CHILDREN < self->count ? child + CHILDREN : self->count, best = child;
        for (int64_t other = child + 1; other < end; other++)
            if (before(&self->entries[other], &self->entries[best]))
                best = other;
        if (!before(&self->entries[best], &entry))
            break;
        put_at(self, place, &self->entries[best]);
        place = (int32_t)best;
    }
    put_at(self, place, &entry);
}

static void settle(Places *self, int32_t place, Entry entry)
{
    if (place > 0 && before(&entry, &self->entries[(place - 1) / CHILDREN]))
        rise(self, place, entry);
    else
        sink(self, place, entry);
}

static void take_out(Places *self, int32_t place)
{
    self->place_of[self->entries[place].number] = NOWHERE;
    Entry last = self->entries[--self->count];
    if (place < self->count)
        settle(self, place, last);
}

static int make_room(Places *self, int32_t number)
{
    if (number >= self->numbers) {
        int32_t numbers = number < 32 ? 64 : 2 * number;
        int32_t *place_of = PyMem_Realloc(self->place_of, (size_t)numbers * sizeof(int32_t));
        if (place_of == NULL)
            return -1;
        for (int32_t i = self->numbers; i < numbers; i++)
            place_of[i] = NOWHERE;
        self->place_of = place_of;
        self->numbers = numbers;
    }
    if (self->count == self->room) {
        int32_t room = self->room ? 2 * self->room : 64;
        Entry *entries = PyMem_Realloc(self->entries, (size_t)room * sizeof(Entry));
        if (entries == NULL)
            return -1;
        self->entries = entries;
        self->room = room;
    }
    return 0;
}

static int enter(Places *self, Entry entry)
{
    if (entry.number < self->numbers && self->place_of[entry.number] != NOWHERE) {
        settle(self, self->place_of[entry.number], entry);
        return 0;
    }
    if (make_room(self, entry.number) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    rise(self, self->count++, entry);
    return 0;
}

/* A number of a site, or NOWHERE with an exception. */
static int32_t number_of(PyObject *object)
{
    long number = PyLong_AsLong(object);
    if (number == -1 && PyErr_Occurred())
        return NOWHERE;
    if (number < 0 || number >= MOST) {
        PyErr_Format(PyExc_ValueError, "no number of a site: %ld", number);
        return NOWHERE;
    }
    return (int32_t)number;
}

static PyObject *places_put(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, "put(number, key, serial, then)");
        return NULL;
    }
    Entry entry;
    entry.number = number_of(args[0]);
    if (entry.number == NOWHERE)
        return NULL;
    entry.key = PyFloat_AsDouble(args[1]);
    if (entry.key == -1.0 && PyErr_Occurred())
        return NULL;
    entry.serial = PyLong_AsLongLong(args[2]);
    if (entry.serial == -1 && PyErr_Occurred())
        return NULL;
    entry.then = PyFloat_AsDouble(args[3]);
    if (entry.then == -1.0 && PyErr_Occurred())
        return NULL;
    if (isnan(entry.key)) /* compares with nothing: last, as for the Python twin */
        entry.key = INFINITY;
    if (enter((Places *)object, entry) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *places_remove(PyObject *object, PyObject *argument)
{
    Places *self = (Places *)object;
    int32_t number = number_of(argument);
    if (number == NOWHERE)
        return NULL;
    if (number < self->numbers && self->place_of[number] != NOWHERE)
        take_out(self, self->place_of[number]);
    Py_RETURN_NONE;
}

static PyObject *places_first(PyObject *object, PyObject *ignored)
{
    Places *self = (Places *)object;
    return PyLong_FromLong(self->count ? self->entries[0].number : NOWHERE);
}

static PyObject *places_first_key(PyObject *object, PyObject *ignored)
{
    Places *self = (Places *)object;
    return PyFloat_FromDouble(self->count ? self->entries[0].key : INFINITY);
}

static PyTypeObject places_type;

static PyObject *places_first_few(PyObject *object, PyObject *argument)
{
    Places *self = (Places *)object;
    Py_ssize_t most = PyLong_AsSsize_t(argument);
    if (most == -1 && PyErr_Occurred())
        return NULL;
    Py_ssize_t count = most < 0 ? 0 : most < self->count ? most : self->count;
    PyObject *numbers = PyList_New(count);
    Entry *taken = PyMem_Malloc((size_t)(count ? count : 1) * sizeof(Entry));
    if (numbers == NULL || taken == NULL) {
        Py_XDECREF(numbers);
        PyMem_Free(taken);
        return PyErr_NoMemory();
    }
    int failed = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        taken[i] = self->entries[0];
        take_out(self, 0);
        PyObject *number = PyLong_FromLong(taken[i].number);
        failed |= number == NULL;
        PyList_SET_ITEM(numbers, i, number);
    }
    for (Py_ssize_t i = 0; i < count; i++)
        enter(self, taken[i]); /* there is room: they stood here before */
    PyMem_Free(taken);
    if (failed)
        Py_CLEAR(numbers);
    return numbers;
}

static PyObject *places_move_until(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    Places *self = (Places *)object;
    if (count != 2 || !Py_IS_TYPE(args[1], &places_type) || args[1] == object) {
        PyErr_SetString(PyExc_TypeError, "move_until(key, other places)");
        return NULL;
    }
    Places *other = (Places *)args[1];
    double until = PyFloat_AsDouble(args[0]);
    if (until == -1.0 && PyErr_Occurred())
        return NULL;
    PyObject *unsure = PyList_New(0);
    while (unsure != NULL && self->count && self->entries[0].key <= until) {
        Entry entry = self->entries[0];
        take_out(self, 0);
        if (!isnan(entry.then)) {
            entry.key = entry.then;
            if (enter(other, entry) < 0)
                Py_CLEAR(unsure);
            continue;
        }
        PyObject *number = PyLong_FromLong(entry.number);
        if (number == NULL || PyList_Append(unsure, number) < 0)
            Py_CLEAR(unsure);
        Py_XDECREF(number);
    }
    return unsure;
}

static PyObject *places_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    Places *self = (Places *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->entries = NULL;
        self->place_of = NULL;
        self->count = self->room = self->numbers = 0;
    }
    return (PyObject *)self;
}

static void places_free(PyObject *object)
{
    PyMem_Free(((Places *)object)->entries);
    PyMem_Free(((Places *)object)->place_of);
    Py_TYPE(object)->tp_free(object);
}

static Py_ssize_t places_length(PyObject *object) { return ((Places *)object)->count; }

static PyMethodDef places_methods[] = {
    {"put", (PyCFunction)(void (*)(void))places_put, METH_FASTCALL, "put(number, key, serial, then)"},
    {"remove", places_remove, METH_O, "remove(number)"},
    {"first", places_first, METH_NOARGS, "first() -> number, or -1"},
    {"first_key", places_first_key, METH_NOARGS, "first_key() -> key, or infinity"},
    {"first_few", places_first_few, METH_O, "first_few(most) -> numbers"},
    {"move_until", (PyCFunction)(void (*)(void))places_move_until, METH_FASTCALL, "move_until(key, places) -> numbers"},
    {NULL, NULL, 0, NULL},
};

static PySequenceMethods places_as_sequence = {.sq_length = places_length};

static PyTypeObject places_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "headway.engine._site_heap.SiteHeap",
    .tp_basicsize = sizeof(Places),
    .tp_dealloc = places_free,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "The places of numbers in order.",
    .tp_methods = places_methods,
    .tp_as_sequence = &places_as_sequence,
    .tp_new = places_new,
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "headway.engine._site_heap", "The sites in order.", -1, NULL, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__site_heap(void)
{
    if (PyType_Ready(&places_type) < 0)
        return NULL;
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && PyModule_AddObjectRef(module, "SiteHeap", (PyObject *)&places_type) < 0)
        Py_CLEAR(module);
    return module;
}
