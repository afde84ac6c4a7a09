/* `sha1.h` for Python. Tests compare it with hashlib. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "../sha1.h"

/* -- the module ------------------------------------------------------------------------------------------------------ */

static PyObject *text_of(const char *digest)
{
    PyObject *text = PyUnicode_New(5 + DIGEST_CHARACTERS, 127);
    if (text != NULL) {
        memcpy(PyUnicode_1BYTE_DATA(text), "sha1:", 5);
        memcpy(PyUnicode_1BYTE_DATA(text) + 5, digest, DIGEST_CHARACTERS);
    }
    return text;
}

/* Each item is bytes, or a pair of bytes that are hashed as one message. */
static PyObject *digests(PyObject *module, PyObject *args)
{
    PyObject *object, *found = NULL;
    int way = AUTO;
    if (!PyArg_ParseTuple(args, "O!|i:digests", &PyList_Type, &object, &way))
        return NULL;
    if (way != AUTO && (way < 0 || way > SINGLE || !possible[way]))
        return PyErr_Format(PyExc_ValueError, "this processor cannot hash in way %d", way);
    /* The list may change while the lock is released; the octets are held. */
    PyObject *items = PyList_AsTuple(object);
    if (items == NULL)
        return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(items);
    Message *messages = PyMem_Calloc((size_t)(count ? count : 1), sizeof(Message));
    char *texts = PyMem_Malloc((size_t)(count ? count : 1) * DIGEST_CHARACTERS);
    if (messages == NULL || texts == NULL) {
        PyErr_NoMemory();
        goto end;
    }
    size_t total = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PyTuple_GET_ITEM(items, i);
        Py_ssize_t parts = PyTuple_Check(item) ? PyTuple_GET_SIZE(item) : 1;
        if (parts < 1 || parts > 2) {
            PyErr_SetString(PyExc_TypeError, "a message has one or two parts");
            goto end;
        }
        for (Py_ssize_t part = 0; part < parts; part++) {
            PyObject *octets = PyTuple_Check(item) ? PyTuple_GET_ITEM(item, part) : item;
            if (!PyBytes_Check(octets)) {
                PyErr_SetString(PyExc_TypeError, "a message is bytes, or a tuple of them");
                goto end;
            }
            messages[i].part[part] = (const unsigned char *)PyBytes_AS_STRING(octets);
            messages[i].length[part] = (size_t)PyBytes_GET_SIZE(octets);
            total += messages[i].length[part];
        }
    }
    way = way == AUTO ? best_way : way;
    if (total > 1 << 18) { /* as hashlib: not held for long pages */
        Py_BEGIN_ALLOW_THREADS
        hash_all(way, messages, (size_t)count, texts);
        Py_END_ALLOW_THREADS
    } else {
        hash_all(way, messages, (size_t)count, texts);
    }
    found = PyList_New(count);
    for (Py_ssize_t i = 0; found != NULL && i < count; i++) {
        PyObject *text = text_of(texts + i * DIGEST_CHARACTERS);
        if (text == NULL)
            Py_CLEAR(found);
        else
            PyList_SET_ITEM(found, i, text);
    }
end:
    PyMem_Free(messages);
    PyMem_Free(texts);
    Py_DECREF(items);
    return found;
}

static PyObject *ways(PyObject *module, PyObject *unused)
{
    PyObject *found = PyList_New(0);
    for (int way = PAIRS; found != NULL && way <= SINGLE; way++) {
        PyObject *number = possible[way] ? PyLong_FromLong(way) : NULL;
        if (number != NULL && PyList_Append(found, number) < 0)
            Py_CLEAR(found);
        Py_XDECREF(number);
    }
    return found;
}

static PyMethodDef methods[] = {
    {"digests", digests, METH_VARARGS, "digests([bytes or (bytes, bytes), ...], way=0) -> ['sha1:...', ...]"},
    {"ways", ways, METH_NOARGS, "ways() -> the ways to hash that this processor has, for tests"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "headway.pages._sha1", "SHA-1 of many messages at once.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__sha1(void)
{
    find_ways();
    return PyModule_Create(&definition);
}
