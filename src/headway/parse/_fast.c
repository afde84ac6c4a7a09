/* The two inner loops of reading a page: finding its elements, and telling its words apart.
 *
 * `scan` does what `scanner.scan` does in Python, and `words` what `fingerprint` asks for, several times as fast;
 * a test compares them on random pages. Nothing here looks beyond the length of the text, keeps anything between
 * calls, or takes more than linear time. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define ALWAYS static inline __attribute__((always_inline))

typedef Py_ssize_t Place;

/* A text of one of the three widths that Python has; each function is compiled once for each of them. */
typedef struct {
    const void *data;
    Place length;
    PyObject *object;
} Text;

#define AT(place) PyUnicode_READ(kind, text->data, (place))

/* As `str.isspace`, which most letters beyond ASCII need not be asked about. */
ALWAYS int is_space(Py_UCS4 c)
{
    return (c < 128 || c == 0x85 || c == 0xA0 || (c >= 0x1680 && c <= 0x3000)) && Py_UNICODE_ISSPACE(c);
}
#define IS_SPACE(c) is_space(c)

ALWAYS Place find(int kind, const Text *text, Py_UCS4 wanted, Place from, Place end)
{
    if (kind == PyUnicode_1BYTE_KIND) {
        if (from >= end)
            return -1;
        const char *start = (const char *)text->data;
        const char *found = memchr(start + from, (int)wanted, (size_t)(end - from));
        return found == NULL ? -1 : found - start;
    }
    for (Place at = from; at < end; at++)
        if (AT(at) == wanted)
            return at;
    return -1;
}

ALWAYS Py_UCS4 lower(Py_UCS4 c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; }

/* Whether a word in lower case stands at a place, in whatever case. */
ALWAYS int stands(int kind, const Text *text, Place at, const char *word, Place length)
{
    if (at + length > text->length)
        return 0;
    for (Place i = 0; i < length; i++)
        if (lower(AT(at + i)) != (Py_UCS4)word[i])
            return 0;
    return 1;
}

ALWAYS int ends_name(int kind, const Text *text, Place at)
{
    if (at >= text->length)
        return 0;
    Py_UCS4 c = AT(at);
    return c == '>' || c == '/' || IS_SPACE(c);
}

/* -- elements ------------------------------------------------------------------------------------------------ */

typedef struct {
    const char *name;
    Place length;
    int is_raw;    /* its content is no markup */
    int is_silent; /* and says nothing to us */
    PyObject *object;
} Element;

static Element elements[] = {
    {"a", 1, 0, 0, NULL},        {"area", 4, 0, 0, NULL},   {"base", 4, 0, 0, NULL},  {"frame", 5, 0, 0, NULL},
    {"iframe", 6, 1, 0, NULL},   {"link", 4, 0, 0, NULL},   {"meta", 4, 0, 0, NULL},  {"title", 5, 1, 0, NULL},
    {"script", 6, 1, 1, NULL},   {"style", 5, 1, 1, NULL},  {"textarea", 8, 1, 1, NULL}, {"xmp", 3, 1, 1, NULL},
    {"noembed", 7, 1, 1, NULL},  {"plaintext", 9, 1, 1, NULL},
};
enum { A = 0, TITLE = 7, PLAINTEXT = 13, ELEMENTS = 14 };

static struct {
    const char *name;
    Place length;
    PyObject *object;
} attributes[] = {
    {"href", 4, NULL}, {"rel", 3, NULL},        {"name", 4, NULL}, {"content", 7, NULL},
    {"src", 3, NULL},  {"http-equiv", 10, NULL}, {"type", 4, NULL},
};
enum { HREF = 0, ATTRIBUTES = 7 };
static PyObject *text_name;

ALWAYS int element_at(int kind, const Text *text, Place at)
{
    Py_UCS4 first = at < text->length ? lower(AT(at)) : 0;
    for (int i = 0; i < ELEMENTS; i++) {
        const Element *element = &elements[i];
        if ((Py_UCS4)element->name[0] == first && stands(kind, text, at, element->name, element->length)
            && ends_name(kind, text, at + element->length))
            return i;
    }
    return -1;
}

/* Where a tag whose name has been read is over: at its `>`, or at the end of the text. A quote opens a value only
 * behind an equals sign; one that is never closed does not count as a quote. */
ALWAYS Place tag_end(int kind, const Text *text, Place at)
{
    while (at < text->length) {
        Py_UCS4 c = AT(at);
        if (c == '>')
            return at;
        at++;
        if (c != '=')
            continue;
        while (at < text->length && IS_SPACE(AT(at)))
            at++;
        if (at >= text->length)
            break;
        c = AT(at);
        if (c == '"' || c == '\'') {
            Place close = find(kind, text, c, at + 1, text->length);
            if (close >= 0)
                at = close + 1;
        } else if (c != '>') {
            while (at < text->length && AT(at) != '>' && !IS_SPACE(AT(at)))
                at++;
        }
    }
    return text->length;
}

/* The attributes that somebody reads. Of two with one name the first counts. */
ALWAYS PyObject *attributes_of(int kind, const Text *text, Place at, Place end, PyObject *unescape)
{
    PyObject *found = PyDict_New();
    if (found == NULL)
        return NULL;
    unsigned known = 0;
    while (at < end) {
        Py_UCS4 c = AT(at);
        if (c == '/' || c == '>' || c == '=' || IS_SPACE(c)) {
            at++;
            continue;
        }
        Place name = at;
        while (at < end && (c = AT(at)) != '/' && c != '>' && c != '=' && !IS_SPACE(c))
            at++;
        Place name_end = at, from = at, to = at;
        while (at < end && IS_SPACE(AT(at)))
            at++;
        if (at < end && AT(at) == '=') {
            at++;
            while (at < end && IS_SPACE(AT(at)))
                at++;
            c = at < end ? AT(at) : 0;
            Place close = c == '"' || c == '\'' ? find(kind, text, c, at + 1, end) : -1;
            if (close >= 0) {
                from = at + 1, to = close, at = close + 1;
            } else {
                from = at;
                while (at < end && AT(at) != '>' && !IS_SPACE(AT(at)))
                    at++;
                to = at;
            }
        } else {
            at = name_end;
        }
        for (int i = 0; i < ATTRIBUTES; i++) {
            if (attributes[i].length != name_end - name || (known >> i & 1)
                || !stands(kind, text, name, attributes[i].name, attributes[i].length))
                continue;
            known |= 1u << i;
            PyObject *value = PyUnicode_Substring(text->object, from, to);
            if (value != NULL && find(kind, text, '&', from, to) >= 0)
                Py_SETREF(value, PyObject_CallOneArg(unescape, value));
            if (value == NULL || PyDict_SetItem(found, attributes[i].object, value) < 0) {
                Py_XDECREF(value);
                Py_DECREF(found);
                return NULL;
            }
            Py_DECREF(value);
            break;
        }
    }
    return found;
}

/* Where the comment opened before a place is over, or -1. */
ALWAYS Place behind_comment(int kind, const Text *text, Place at)
{
    if (at < text->length && AT(at) == '>')
        return at + 1;
    if (at + 1 < text->length && AT(at) == '-' && AT(at + 1) == '>')
        return at + 2;
    for (Place dash = at; (dash = find(kind, text, '-', dash, text->length)) >= 0; dash++) {
        if (dash + 2 >= text->length || AT(dash + 1) != '-')
            continue;
        if (AT(dash + 2) == '>')
            return dash + 3;
        if (AT(dash + 2) == '!' && dash + 3 < text->length && AT(dash + 3) == '>')
            return dash + 4;
    }
    return -1;
}

/* Where the end tag of an element stands, or -1. */
ALWAYS Place end_tag(int kind, const Text *text, const Element *element, Place at)
{
    for (; (at = find(kind, text, '<', at, text->length)) >= 0; at++)
        if (at + 1 < text->length && AT(at + 1) == '/' && stands(kind, text, at + 2, element->name, element->length)
            && ends_name(kind, text, at + 2 + element->length))
            return at;
    return -1;
}

ALWAYS int add(PyObject *found, const Element *element, PyObject *read)
{
    PyObject *pair = read == NULL ? NULL : PyTuple_Pack(2, element->object, read);
    Py_XDECREF(read);
    int failed = pair == NULL || PyList_Append(found, pair) < 0;
    Py_XDECREF(pair);
    return failed ? -1 : 0;
}

static int add_title(PyObject *read, const Text *text, Place from, Place to, PyObject *unescape)
{
    PyObject *words = PyUnicode_Substring(text->object, from, to);
    if (words != NULL)
        Py_SETREF(words, PyObject_CallOneArg(unescape, words));
    int failed = words == NULL || PyDict_SetItem(read, text_name, words) < 0;
    Py_XDECREF(words);
    return failed ? -1 : 0;
}

ALWAYS PyObject *scan_text(int kind, const Text *text, PyObject *in_attribute, PyObject *in_text, Place title_length)
{
    PyObject *found = PyList_New(0);
    Place position = 0, before = -1, at = 0;
    while (found != NULL && (at = find(kind, text, '<', at, text->length)) >= 0) {
        if (stands(kind, text, at + 1, "!--", 3)) {
            at = position = behind_comment(kind, text, at + 4);
            before = -1;
            if (position < 0)
                break;
            continue;
        }
        int number = element_at(kind, text, at + 1);
        if (number < 0) {
            before = at++;
            continue;
        }
        /* What looks like a tag may stand in another's attribute: `<img alt="<a href=x>">`. */
        if (before >= 0 && before + 1 < text->length && lower(AT(before + 1)) >= 'a' && lower(AT(before + 1)) <= 'z'
            && find(kind, text, '>', before, at) < 0) {
            Place end = tag_end(kind, text, before + 2);
            if (end >= text->length)
                break;
            at = position = end + 1, before = -1;
            continue;
        }
        const Element *element = &elements[number];
        Place inside = at + 1 + element->length, end = tag_end(kind, text, inside);
        if (end >= text->length)
            break;
        at = position = end + 1, before = -1;
        Place close = element->is_raw && number != PLAINTEXT ? end_tag(kind, text, element, position) : -1;
        if (!element->is_silent) {
            PyObject *read = attributes_of(kind, text, inside, end, in_attribute);
            if (number == TITLE && read != NULL) {
                Place to = close >= 0 ? close : text->length;
                to = to - position > title_length ? position + title_length : to;
                if (add_title(read, text, position, to, in_text) < 0)
                    Py_CLEAR(read);
            }
            if (number == A && read != NULL && PyDict_GetItemWithError(read, attributes[HREF].object) == NULL)
                Py_DECREF(read); /* an anchor, which says nothing */
            else if (add(found, element, read) < 0)
                Py_CLEAR(found);
        }
        if (element->is_raw) {
            if (close < 0)
                break;
            at = position = close + 2 + element->length;
        }
    }
    return found;
}

/* -- words --------------------------------------------------------------------------------------------------- */

typedef struct {
    Place from;
    uint32_t length;
    uint32_t hash;
} Word;

typedef struct {
    Word *words; /* an open table: length 0 is an empty place */
    size_t mask, used;
} Table;

static int grow(Table *table)
{
    size_t places = (table->mask + 1) * 2;
    Word *words = PyMem_Calloc(places, sizeof(Word));
    if (words == NULL)
        return -1;
    for (size_t i = 0; i <= table->mask; i++) {
        if (table->words[i].length == 0)
            continue;
        size_t place = table->words[i].hash & (places - 1);
        while (words[place].length)
            place = (place + 1) & (places - 1);
        words[place] = table->words[i];
    }
    PyMem_Free(table->words);
    table->words = words;
    table->mask = places - 1;
    return 0;
}

/* 1 if the word is new, 0 if it was there, -1 without memory. */
ALWAYS int put(int kind, const Text *text, Table *table, Word word)
{
    size_t place = word.hash & table->mask;
    for (; table->words[place].length; place = (place + 1) & table->mask) {
        const Word *other = &table->words[place];
        if (other->hash == word.hash && other->length == word.length
            && memcmp((const char *)text->data + other->from * kind, (const char *)text->data + word.from * kind,
                      (size_t)word.length * kind) == 0)
            return 0;
    }
    table->words[place] = word;
    return ++table->used * 2 > table->mask && grow(table) < 0 ? -1 : 1;
}

ALWAYS PyObject *words_of(int kind, const Text *text, Table *table)
{
    PyObject *unique = PyList_New(0);
    Place count = 0, at = 0;
    while (unique != NULL && (at = find(kind, text, '>', at, text->length)) >= 0) {
        at++; /* what follows up to the next tag is seen by people */
        while (at < text->length && AT(at) != '<') {
            Py_UCS4 c = AT(at);
            if (IS_SPACE(c)) {
                at++;
                continue;
            }
            Place from = at;
            uint32_t hash = 0;
            while (at < text->length && (c = AT(at)) != '<' && !IS_SPACE(c)) {
                hash = hash * 31 + c;
                at++;
            }
            count++;
            hash *= 2654435769u;
            Word word = {from, (uint32_t)(at - from), hash ^ hash >> 15};
            int is_new = put(kind, text, table, word);
            PyObject *object = is_new > 0 ? PyUnicode_Substring(text->object, from, at) : NULL;
            if (is_new < 0 || (is_new && (object == NULL || PyList_Append(unique, object) < 0)))
                Py_CLEAR(unique);
            Py_XDECREF(object);
            if (unique == NULL) {
                if (!PyErr_Occurred())
                    PyErr_NoMemory();
                return NULL;
            }
        }
    }
    return Py_BuildValue("nN", count, unique);
}

/* -- the module ---------------------------------------------------------------------------------------------- */

static PyObject *scan(PyObject *module, PyObject *args)
{
    PyObject *object, *in_attribute, *in_text;
    Place title_length;
    if (!PyArg_ParseTuple(args, "UOOn:scan", &object, &in_attribute, &in_text, &title_length))
        return NULL;
    Text text = {PyUnicode_DATA(object), PyUnicode_GET_LENGTH(object), object};
    switch (PyUnicode_KIND(object)) {
    case PyUnicode_1BYTE_KIND:
        return scan_text(PyUnicode_1BYTE_KIND, &text, in_attribute, in_text, title_length);
    case PyUnicode_2BYTE_KIND:
        return scan_text(PyUnicode_2BYTE_KIND, &text, in_attribute, in_text, title_length);
    default:
        return scan_text(PyUnicode_4BYTE_KIND, &text, in_attribute, in_text, title_length);
    }
}

static PyObject *words(PyObject *module, PyObject *args)
{
    PyObject *object;
    Place most;
    if (!PyArg_ParseTuple(args, "Un:words", &object, &most))
        return NULL;
    Place length = PyUnicode_GET_LENGTH(object);
    Text text = {PyUnicode_DATA(object), length < most ? length : most, object};
    Table table = {PyMem_Calloc(1024, sizeof(Word)), 1023, 0};
    if (table.words == NULL)
        return PyErr_NoMemory();
    PyObject *found;
    switch (PyUnicode_KIND(object)) {
    case PyUnicode_1BYTE_KIND:
        found = words_of(PyUnicode_1BYTE_KIND, &text, &table);
        break;
    case PyUnicode_2BYTE_KIND:
        found = words_of(PyUnicode_2BYTE_KIND, &text, &table);
        break;
    default:
        found = words_of(PyUnicode_4BYTE_KIND, &text, &table);
    }
    PyMem_Free(table.words);
    return found;
}

static PyMethodDef methods[] = {
    {"scan", scan, METH_VARARGS, "scan(text, unescape_attribute, unescape_text, title_length) -> elements"},
    {"words", words, METH_VARARGS, "words(text, most) -> (how many words between tags, each of them once)"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "headway.parse._fast", "The inner loops of reading a page.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__fast(void)
{
    for (int i = 0; i < ELEMENTS; i++)
        if ((elements[i].object = PyUnicode_InternFromString(elements[i].name)) == NULL)
            return NULL;
    for (int i = 0; i < ATTRIBUTES; i++)
        if ((attributes[i].object = PyUnicode_InternFromString(attributes[i].name)) == NULL)
            return NULL;
    if ((text_name = PyUnicode_InternFromString("text")) == NULL)
        return NULL;
    return PyModule_Create(&definition);
}
