/* The two inner loops of reading a page: finding its elements, and telling its words apart.
 *
 * `scan` does what `scanner.scan` does in Python, and `words` what `fingerprint.words_of` does, several times as fast;
 * a test compares them on random pages. Both read octets: all that markup is made of is ASCII, which stands for itself
 * in UTF-8, so that only what is taken out of a page need be decoded. Nothing here looks beyond the length of the page,
 * keeps anything between calls, or takes more than linear time. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define ALWAYS static inline __attribute__((always_inline))

typedef Py_ssize_t Place;

typedef struct {
    const unsigned char *data;
    Place length;
} Page;

#define AT(place) (page->data[place])

/* As `bytes.isspace`. */
ALWAYS int is_space(unsigned char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

ALWAYS Place find(const Page *page, unsigned char wanted, Place from, Place end)
{
    if (from >= end)
        return -1;
    const unsigned char *found = memchr(page->data + from, wanted, (size_t)(end - from));
    return found == NULL ? -1 : found - page->data;
}

ALWAYS unsigned char lower(unsigned char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; }

/* Whether a word in lower case stands at a place, in whatever case. */
ALWAYS int stands(const Page *page, Place at, const char *word, Place length)
{
    if (at + length > page->length)
        return 0;
    for (Place i = 0; i < length; i++)
        if (lower(AT(at + i)) != (unsigned char)word[i])
            return 0;
    return 1;
}

ALWAYS int ends_name(const Page *page, Place at)
{
    return at < page->length && (AT(at) == '>' || AT(at) == '/' || is_space(AT(at)));
}

static PyObject *decoded(const Page *page, Place from, Place to)
{
    return PyUnicode_DecodeUTF8((const char *)page->data + from, to - from, "replace");
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
enum { AREA = 1, TITLE = 7, PLAINTEXT = 13, ELEMENTS = 14 };

static struct {
    const char *name;
    Place length;
    PyObject *object;
} attributes[] = {
    {"href", 4, NULL}, {"rel", 3, NULL},        {"name", 4, NULL}, {"content", 7, NULL},
    {"src", 3, NULL},  {"http-equiv", 10, NULL}, {"type", 4, NULL},
};
enum { HREF = 0, REL = 1, ATTRIBUTES = 7 };
static PyObject *text_name;

/* A bit for each letter that one of them begins with: most tags are none of them. */
static uint32_t first_letters;

ALWAYS int element_at(const Page *page, Place at)
{
    unsigned char first = at < page->length ? lower(AT(at)) : 0;
    if (first < 'a' || first > 'z' || !(first_letters >> (first - 'a') & 1))
        return -1;
    for (int i = 0; i < ELEMENTS; i++) {
        const Element *element = &elements[i];
        if ((unsigned char)element->name[0] == first && stands(page, at, element->name, element->length)
            && ends_name(page, at + element->length))
            return i;
    }
    return -1;
}

/* Where a tag whose name has been read is over: at its `>`, or at the end of the text. A quote opens a value only
 * behind an equals sign; one that is never closed does not count as a quote. */
ALWAYS Place tag_end(const Page *page, Place at)
{
    while (at < page->length) {
        unsigned char c = AT(at);
        if (c == '>')
            return at;
        at++;
        if (c != '=')
            continue;
        while (at < page->length && is_space(AT(at)))
            at++;
        if (at >= page->length)
            break;
        c = AT(at);
        if (c == '"' || c == '\'') {
            Place close = find(page, c, at + 1, page->length);
            if (close >= 0)
                at = close + 1;
        } else if (c != '>') {
            while (at < page->length && AT(at) != '>' && !is_space(AT(at)))
                at++;
        }
    }
    return page->length;
}

typedef struct {
    Place from, to;
    int is_there;
} Value;

/* The attributes that somebody reads. Of two with one name the first counts. */
ALWAYS void read_attributes(const Page *page, Place at, Place end, Value *values)
{
    memset(values, 0, ATTRIBUTES * sizeof(Value));
    while (at < end) {
        unsigned char c = AT(at);
        if (c == '/' || c == '>' || c == '=' || is_space(c)) {
            at++;
            continue;
        }
        Place name = at;
        while (at < end && (c = AT(at)) != '/' && c != '>' && c != '=' && !is_space(c))
            at++;
        Place name_end = at, from = at, to = at;
        while (at < end && is_space(AT(at)))
            at++;
        if (at < end && AT(at) == '=') {
            at++;
            while (at < end && is_space(AT(at)))
                at++;
            c = at < end ? AT(at) : 0;
            Place close = c == '"' || c == '\'' ? find(page, c, at + 1, end) : -1;
            if (close >= 0) {
                from = at + 1, to = close, at = close + 1;
            } else {
                from = at;
                while (at < end && AT(at) != '>' && !is_space(AT(at)))
                    at++;
                to = at;
            }
        } else {
            at = name_end;
        }
        for (int i = 0; i < ATTRIBUTES; i++) {
            if (attributes[i].length != name_end - name || values[i].is_there
                || !stands(page, name, attributes[i].name, attributes[i].length))
                continue;
            values[i] = (Value){from, to, 1};
            break;
        }
    }
}

static PyObject *said(const Page *page, Value value, PyObject *unescape)
{
    PyObject *text = decoded(page, value.from, value.to);
    if (text != NULL && find(page, '&', value.from, value.to) >= 0)
        Py_SETREF(text, PyObject_CallOneArg(unescape, text));
    return text;
}

static PyObject *named(const Page *page, const Value *values, PyObject *unescape)
{
    PyObject *found = PyDict_New();
    for (int i = 0; i < ATTRIBUTES && found != NULL; i++) {
        if (!values[i].is_there)
            continue;
        PyObject *text = said(page, values[i], unescape);
        if (text == NULL || PyDict_SetItem(found, attributes[i].object, text) < 0)
            Py_CLEAR(found);
        Py_XDECREF(text);
    }
    return found;
}

/* Where the comment opened before a place is over, or -1. */
ALWAYS Place behind_comment(const Page *page, Place at)
{
    if (at < page->length && AT(at) == '>')
        return at + 1;
    if (at + 1 < page->length && AT(at) == '-' && AT(at + 1) == '>')
        return at + 2;
    for (Place dash = at; (dash = find(page, '-', dash, page->length)) >= 0; dash++) {
        if (dash + 2 >= page->length || AT(dash + 1) != '-')
            continue;
        if (AT(dash + 2) == '>')
            return dash + 3;
        if (AT(dash + 2) == '!' && dash + 3 < page->length && AT(dash + 3) == '>')
            return dash + 4;
    }
    return -1;
}

/* Where the end tag of an element stands, or -1. */
ALWAYS Place end_tag(const Page *page, const Element *element, Place at)
{
    for (; (at = find(page, '<', at, page->length)) >= 0; at++)
        if (at + 1 < page->length && AT(at + 1) == '/' && stands(page, at + 2, element->name, element->length)
            && ends_name(page, at + 2 + element->length))
            return at;
    return -1;
}

/* Appends what was made, if it was. */
ALWAYS int add(PyObject *found, PyObject *made)
{
    int failed = made == NULL || PyList_Append(found, made) < 0;
    Py_XDECREF(made);
    return failed ? -1 : 0;
}

ALWAYS int add_element(PyObject *found, const Element *element, PyObject *read)
{
    PyObject *pair = read == NULL ? NULL : PyTuple_Pack(2, element->object, read);
    Py_XDECREF(read);
    return add(found, pair);
}

static PyObject *with_title(PyObject *read, const Page *page, Place from, Place to, PyObject *unescape)
{
    PyObject *words = read == NULL ? NULL : decoded(page, from, to);
    if (words != NULL)
        Py_SETREF(words, PyObject_CallOneArg(unescape, words));
    if (words == NULL || PyDict_SetItem(read, text_name, words) < 0)
        Py_CLEAR(read);
    Py_XDECREF(words);
    return read;
}

static PyObject *scan_page(const Page *page, PyObject *in_attribute, PyObject *in_text, Place title_length)
{
    PyObject *found = PyList_New(0);
    Place position = 0, before = -1, at = 0;
    while (found != NULL && (at = find(page, '<', at, page->length)) >= 0) {
        if (stands(page, at + 1, "!--", 3)) {
            at = position = behind_comment(page, at + 4);
            before = -1;
            if (position < 0)
                break;
            continue;
        }
        int number = element_at(page, at + 1);
        if (number < 0) {
            before = at++;
            continue;
        }
        /* What looks like a tag may stand in another's attribute: `<img alt="<a href=x>">`. */
        if (before >= 0 && before + 1 < page->length && lower(AT(before + 1)) >= 'a' && lower(AT(before + 1)) <= 'z'
            && find(page, '>', before, at) < 0) {
            Place end = tag_end(page, before + 2);
            if (end >= page->length)
                break;
            at = position = end + 1, before = -1;
            continue;
        }
        const Element *element = &elements[number];
        Place inside = at + 1 + element->length, end = tag_end(page, inside);
        if (end >= page->length)
            break;
        at = position = end + 1, before = -1;
        Place close = element->is_raw && number != PLAINTEXT ? end_tag(page, element, position) : -1;
        if (!element->is_silent) {
            Value values[ATTRIBUTES];
            read_attributes(page, inside, end, values);
            int failed = 0;
            if (number <= AREA && !values[HREF].is_there) {
                /* an anchor, which says nothing */
            } else if (number <= AREA && !values[REL].is_there) {
                failed = add(found, said(page, values[HREF], in_attribute));
            } else if (number == TITLE) {
                Place to = close >= 0 ? close : page->length;
                to = to - position > title_length ? position + title_length : to;
                PyObject *read = with_title(named(page, values, in_attribute), page, position, to, in_text);
                failed = add_element(found, element, read);
            } else {
                failed = add_element(found, element, named(page, values, in_attribute));
            }
            if (failed)
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
    uint64_t *hashes; /* an open table: 0 is an empty place */
    size_t mask, used;
    uint64_t *in_order;
} Table;

static int grow(Table *table)
{
    size_t places = (table->mask + 1) * 2;
    uint64_t *in_order = PyMem_Realloc(table->in_order, places / 2 * sizeof(uint64_t));
    if (in_order == NULL)
        return -1;
    table->in_order = in_order;
    uint64_t *hashes = PyMem_Calloc(places, sizeof(uint64_t));
    if (hashes == NULL)
        return -1;
    for (size_t i = 0; i < table->used; i++) {
        size_t place = in_order[i] & (places - 1);
        while (hashes[place])
            place = (place + 1) & (places - 1);
        hashes[place] = in_order[i];
    }
    PyMem_Free(table->hashes);
    table->hashes = hashes;
    table->mask = places - 1;
    return 0;
}

/* Words are told apart by their hashes alone: that two of a page have the same 64 bits hardly ever happens. */
ALWAYS int put(Table *table, uint64_t hash)
{
    size_t place = hash & table->mask;
    for (; table->hashes[place]; place = (place + 1) & table->mask)
        if (table->hashes[place] == hash)
            return 0;
    table->hashes[place] = hash;
    table->in_order[table->used++] = hash;
    return table->used * 2 > table->mask ? grow(table) : 0;
}

/* Eight octets as a number, the first the lowest; what is not asked for is zero. */
ALWAYS uint64_t eight_at(const Page *page, Place at, Place wanted)
{
    uint64_t eight = 0;
    if (at + 8 <= page->length)
        memcpy(&eight, page->data + at, 8);
    else
        memcpy(&eight, page->data + at, (size_t)(page->length - at));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    eight = __builtin_bswap64(eight);
#endif
    return wanted < 8 ? eight & ((UINT64_C(1) << 8 * wanted) - 1) : eight;
}

/* As `fingerprint.hash_of`. */
ALWAYS uint64_t hash_of(const Page *page, Place from, Place to)
{
    const uint64_t factor = UINT64_C(0x9E3779B97F4A7C15);
    uint64_t hash = (uint64_t)(to - from) * factor;
    for (Place at = from; at < to; at += 8) {
        hash = (hash ^ eight_at(page, at, to - at)) * factor;
        hash ^= hash >> 32;
    }
    return hash ? hash : 1;
}

/* What no word goes beyond: blanks, and the next tag. */
static unsigned char ends_word[256];

/* How many words there are, or -1 without memory. */
static Place tell_words(const Page *page, Table *table)
{
    Place count = 0, at = 0, length = page->length;
    while ((at = find(page, '>', at, length)) >= 0) {
        at++; /* what follows up to the next tag is seen by people */
        for (; at < length && AT(at) != '<'; at++) {
            if (ends_word[AT(at)])
                continue;
            Place from = at++;
            while (at < length && !ends_word[AT(at)])
                at++;
            count++;
            if (put(table, hash_of(page, from, at)) < 0)
                return -1;
            at--; /* the one behind it is looked at again: it may be a tag's */
        }
    }
    return count;
}

/* -- the module ---------------------------------------------------------------------------------------------- */

static PyObject *scan(PyObject *module, PyObject *args)
{
    PyObject *object, *in_attribute, *in_text;
    Place title_length;
    if (!PyArg_ParseTuple(args, "SOOn:scan", &object, &in_attribute, &in_text, &title_length))
        return NULL;
    Page page = {(const unsigned char *)PyBytes_AS_STRING(object), PyBytes_GET_SIZE(object)};
    return scan_page(&page, in_attribute, in_text, title_length);
}

static PyObject *words(PyObject *module, PyObject *args)
{
    enum { AT_FIRST = 2048 };
    PyObject *object, *found = NULL;
    Place most;
    if (!PyArg_ParseTuple(args, "Sn:words", &object, &most))
        return NULL;
    Place length = PyBytes_GET_SIZE(object);
    Page page = {(const unsigned char *)PyBytes_AS_STRING(object), length < most ? length : most};
    Table table = {PyMem_Calloc(AT_FIRST, sizeof(uint64_t)), AT_FIRST - 1, 0,
                   PyMem_Malloc(AT_FIRST / 2 * sizeof(uint64_t))};
    Place count = table.hashes == NULL || table.in_order == NULL ? -1 : tell_words(&page, &table);
    if (count < 0)
        PyErr_NoMemory();
    else
        found = Py_BuildValue("ny#", count, (const char *)table.in_order, (Place)(table.used * sizeof(uint64_t)));
    PyMem_Free(table.hashes);
    PyMem_Free(table.in_order);
    return found;
}

static PyMethodDef methods[] = {
    {"scan", scan, METH_VARARGS, "scan(octets, unescape_attribute, unescape_text, title_length) -> elements"},
    {"words", words, METH_VARARGS, "words(octets, most) -> (how many words between tags, the hash of each, once)"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "headway.parse._fast", "The inner loops of reading a page.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__fast(void)
{
    for (int i = 0; i < ELEMENTS; i++) {
        if ((elements[i].object = PyUnicode_InternFromString(elements[i].name)) == NULL)
            return NULL;
        first_letters |= 1u << (elements[i].name[0] - 'a');
    }
    for (int c = 0; c < 256; c++)
        ends_word[c] = c == '<' || is_space((unsigned char)c);
    for (int i = 0; i < ATTRIBUTES; i++)
        if ((attributes[i].object = PyUnicode_InternFromString(attributes[i].name)) == NULL)
            return NULL;
    if ((text_name = PyUnicode_InternFromString("text")) == NULL)
        return NULL;
    return PyModule_Create(&definition);
}
