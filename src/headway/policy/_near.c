/* The loop of `duplicates.near`: one number compared with many, for each page that is fetched. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

static PyObject *near_one(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "near(fingerprint, others, bits)");
        return NULL;
    }
    uint64_t fingerprint = PyLong_AsUnsignedLongLong(args[0]);
    if (PyErr_Occurred())
        return NULL;
    long bits = PyLong_AsLong(args[2]);
    if (bits == -1 && PyErr_Occurred())
        return NULL;
    PyObject *others = PyObject_GetIter(args[1]), *other;
    if (others == NULL)
        return NULL;
    while ((other = PyIter_Next(others)) != NULL) {
        uint64_t number = PyLong_AsUnsignedLongLong(other);
        if (number == (uint64_t)-1 && PyErr_Occurred()) {
            Py_CLEAR(other);
            break;
        }
        if (__builtin_popcountll(number ^ fingerprint) <= bits)
            break;
        Py_DECREF(other);
    }
    Py_DECREF(others);
    if (other == NULL && !PyErr_Occurred())
        Py_RETURN_NONE;
    return other;
}

static PyMethodDef methods[] = {
    {"near", (PyCFunction)(void (*)(void))near_one, METH_FASTCALL,
     "near(fingerprint, others, bits) -> the first of others that differs in at most so many bits, or None"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "headway.policy._near", "Fingerprints that are near to one.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__near(void) { return PyModule_Create(&definition); }
