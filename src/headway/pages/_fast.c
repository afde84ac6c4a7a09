/* The inner loops of reading a page: finding its elements, telling its words apart, likening them to others, and the keys
 * of the pages that it links to.
 *
 * `scan` does what `scanner.scan` does in Python, `words` what `fingerprint.words_of` does, and `likeness` what rensa
 * does, several times as fast; tests compare them on random pages. All read octets: all that markup is made of is ASCII,
 * which stands for itself in UTF-8, so that only what is taken out of a page need be decoded. Nothing here looks beyond
 * the length of the page, keeps anything between calls, or takes more than linear time. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

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
enum { AREA = 1, LINK = 5, META = 6, TITLE = 7, PLAINTEXT = 13, ELEMENTS = 14 };

static struct {
    const char *name;
    Place length;
    PyObject *object;
} attributes[] = {
    {"href", 4, NULL}, {"rel", 3, NULL},        {"name", 4, NULL}, {"content", 7, NULL},
    {"src", 3, NULL},  {"http-equiv", 10, NULL}, {"type", 4, NULL},
};
enum { HREF = 0, REL = 1, NAME = 2, EQUIVALENT = 5, ATTRIBUTES = 7 };
static PyObject *text_name, *url_name;

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
    for (int i = 0; i < ATTRIBUTES; i++)
        values[i].is_there = 0;
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

/* Whether a value is one of some words, in whatever case. */
static int is_one_of(const Page *page, Value value, const char *const *words)
{
    Place length = value.to - value.from;
    for (; *words != NULL; words++)
        if ((Place)strlen(*words) == length && stands(page, value.from, *words, length))
            return 1;
    return 0;
}

/* Whether nobody asks what an element says, which most of a page's head are: they are not even decoded. */
static int says_nothing(const Page *page, int number, const Value *values)
{
    static const char *const for_browsers[] = {"stylesheet", "icon", "shortcut icon", "preload", "preconnect", NULL};
    static const char *const remarks[] = {"author", "description", "generator", "keywords", "viewport", NULL};
    if (number == LINK)
        return !values[HREF].is_there || (values[REL].is_there && is_one_of(page, values[REL], for_browsers));
    if (number == META && !values[EQUIVALENT].is_there)
        return !values[NAME].is_there || is_one_of(page, values[NAME], remarks);
    return number <= AREA && !values[HREF].is_there;
}

/* What reading has cost: the octets gone through, and more for what takes longer than an octet. */
enum { OF_ELEMENT = 50, OF_REFERENCE = 100 };

/* No link is longer, and no directive: what is beyond is not decoded. One more, so that it counts as too long. */
enum { LONGEST_VALUE = 16385 };

static PyObject *said(const Page *page, Value value, PyObject *unescape, Place *cost)
{
    Place to = value.to - value.from > LONGEST_VALUE ? value.from + LONGEST_VALUE : value.to;
    PyObject *text = decoded(page, value.from, to);
    Place references = 0;
    for (Place at = value.from; (at = find(page, '&', at, to)) >= 0; at++)
        references++;
    *cost += OF_REFERENCE * references;
    if (text != NULL && references)
        Py_SETREF(text, PyObject_CallOneArg(unescape, text));
    return text;
}

static PyObject *named(const Page *page, const Value *values, PyObject *unescape, Place *cost)
{
    PyObject *found = PyDict_New();
    for (int i = 0; i < ATTRIBUTES && found != NULL; i++) {
        if (!values[i].is_there)
            continue;
        PyObject *text = said(page, values[i], unescape, cost);
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

typedef struct {
    int number; /* of the element */
    Place text, text_end; /* of a title */
    Place next; /* where to go on behind it, or -1: the rest of the page is no markup */
    Value values[ATTRIBUTES];
} Tag;

/* The next tag that says something, from a place between tags: whether there is one. No octet is gone through more than
 * a few times, and nothing of Python is touched. */
static int next_tag(const Page *page, Place at, Tag *tag)
{
    Place before = -1;
    while ((at = find(page, '<', at, page->length)) >= 0) {
        if (at + 1 < page->length && AT(at + 1) == '!' && stands(page, at + 2, "--", 2)) {
            at = behind_comment(page, at + 4);
            before = -1;
            if (at < 0)
                return 0;
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
                return 0;
            at = end + 1, before = -1;
            continue;
        }
        const Element *element = &elements[number];
        Place inside = at + 1 + element->length, end = tag_end(page, inside);
        if (end >= page->length)
            return 0;
        at = end + 1, before = -1;
        Place close = element->is_raw && number != PLAINTEXT ? end_tag(page, element, at) : -1;
        tag->number = number;
        tag->text = at;
        tag->text_end = close >= 0 ? close : page->length;
        if (element->is_raw)
            at = close >= 0 ? close + 2 + element->length : -1;
        tag->next = at;
        if (!element->is_silent) {
            read_attributes(page, inside, end, tag->values);
            if (!says_nothing(page, number, tag->values))
                return 1;
        }
        if (at < 0)
            return 0;
    }
    return 0;
}

static int add_tag(PyObject *found, const Page *page, const Tag *tag, PyObject *const *unescape, Place title_length,
                   Place *cost)
{
    const Element *element = &elements[tag->number];
    PyObject *in_attribute = unescape[0];
    if (tag->number <= AREA && !tag->values[REL].is_there)
        return add(found, said(page, tag->values[HREF], in_attribute, cost));
    PyObject *read = named(page, tag->values, in_attribute, cost);
    if (tag->number == TITLE) {
        Place to = tag->text_end - tag->text > title_length ? tag->text + title_length : tag->text_end;
        read = with_title(read, page, tag->text, to, unescape[1]);
    }
    return add_element(found, element, read);
}

/* Tags found in one go, before Python objects are made of them. */
enum { AT_ONCE = 64, LONG_PAGE = 65536 };

/* Elements from a place on, until they have cost enough. Returns the place to go on from, -1 behind the last element,
 * or -2 if something failed. On a long page other threads run while tags are looked for. */
static Place scan_page(const Page *page, Place at, PyObject *found, PyObject *const *unescape, Place title_length,
                       Place most, Place *cost)
{
    Tag tags[AT_ONCE];
    while (at >= 0) {
        int count = 0;
        Place begin = at, next = at;
        PyThreadState *state = page->length > LONG_PAGE ? PyEval_SaveThread() : NULL;
        while (count < AT_ONCE && next >= 0)
            next = next_tag(page, next, &tags[count]) ? tags[count++].next : -1;
        if (state != NULL)
            PyEval_RestoreThread(state);
        for (int i = 0; i < count; i++) {
            *cost += OF_ELEMENT;
            if (add_tag(found, page, &tags[i], unescape, title_length, cost) < 0)
                return -2;
            Place behind = tags[i].next < 0 ? page->length : tags[i].next;
            *cost += behind - begin;
            begin = behind;
            if (*cost >= most && tags[i].next >= 0)
                return tags[i].next;
        }
        if (next < 0)
            *cost += page->length - begin;
        at = next;
    }
    return -1;
}

/* -- words --------------------------------------------------------------------------------------------------- */

#define FACTOR UINT64_C(0x9E3779B97F4A7C15)

/* All bits or none. What the compiler does not see through it cannot branch on: whether a word is long, or new, is
 * foreseen wrongly so often that branches would take most of the time. */
ALWAYS uint64_t all_if(int is_so)
{
    uint64_t bits = -(uint64_t)(is_so != 0);
    __asm__("" : "+r"(bits));
    return bits;
}

typedef struct {
    uint64_t *hashes; /* an open table: 0 is an empty place */
    size_t mask, used;
    uint64_t *in_order;
} Table;

/* Odd, and drawn by each process: words made to share a place in the table would be searched in quadratic time. */
static uint64_t spread = FACTOR;

ALWAYS size_t place_of(uint64_t hash, size_t mask) { return (size_t)(hash * spread >> __builtin_clzll(mask)); }

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
        size_t place = place_of(in_order[i], places - 1);
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
    size_t place = place_of(hash, table->mask);
    uint64_t there = table->hashes[place];
    while (all_if(there != hash) & all_if(there != 0)) {
        place = (place + 1) & table->mask;
        there = table->hashes[place];
    }
    table->hashes[place] = hash;
    table->in_order[table->used] = hash;
    table->used += there == 0;
    return table->used * 2 > table->mask ? grow(table) : 0;
}

/* Eight octets as a number, the first the lowest. */
ALWAYS uint64_t eight_at(const unsigned char *octets)
{
    uint64_t eight;
    memcpy(&eight, octets, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    eight = __builtin_bswap64(eight);
#endif
    return eight;
}

/* The first of them, from one to all. */
ALWAYS uint64_t first_of(uint64_t eight, Place wanted)
{
    return eight & ~UINT64_C(0) >> (-8 * (uint64_t)wanted & all_if(wanted < 8) & 63);
}

ALWAYS uint64_t stirred(uint64_t hash, uint64_t eight)
{
    hash = (hash ^ eight) * FACTOR;
    return hash ^ hash >> 32;
}

/* As `fingerprint.hash_of`. Words of up to 16 octets, as nearly all are, take the same steps whatever their length. */
ALWAYS uint64_t hash_of(const Page *page, Place from, Place to)
{
    Place length = to - from, at = 16;
    const unsigned char *word = page->data + from;
    unsigned char last[16] = {0};
    if (page->length - from < 16) /* nothing beyond the page may be looked at */
        word = memcpy(last, word, (size_t)length);
    uint64_t hash = stirred((uint64_t)length * FACTOR, first_of(eight_at(word), length));
    uint64_t longer = stirred(hash, first_of(eight_at(word + 8), length - 8));
    hash ^= (hash ^ longer) & all_if(length > 8);
    for (; at + 8 <= length; at += 8)
        hash = stirred(hash, eight_at(word + at));
    if (at < length) /* the last eight octets of the word, without those that were taken already */
        hash = stirred(hash, eight_at(word + length - 8) >> 8 * (at + 8 - length));
    return hash ? hash : 1;
}

/* Which of 64 octets open or close a tag, and which are blank: a bit each, the first the lowest. */
typedef struct {
    uint64_t opens, closes, is_blank;
} Marks;

#ifdef __SSE2__
ALWAYS Marks marks_of(const unsigned char *octets)
{
    const __m128i opening = _mm_set1_epi8('<'), closing = _mm_set1_epi8('>'), blank = _mm_set1_epi8(' ');
    Marks marks = {0, 0, 0};
#pragma GCC unroll 4
    for (int i = 0; i < 64; i += 16) {
        __m128i some = _mm_loadu_si128((const __m128i *)(octets + i));
        marks.opens |= (uint64_t)_mm_movemask_epi8(_mm_cmpeq_epi8(some, opening)) << i;
        marks.closes |= (uint64_t)_mm_movemask_epi8(_mm_cmpeq_epi8(some, closing)) << i;
        marks.is_blank |= (uint64_t)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(some, blank), some)) << i;
    }
    return marks;
}
#else
ALWAYS Marks marks_of(const unsigned char *octets)
{
    Marks marks = {0, 0, 0};
    for (int i = 0; i < 64; i++) {
        marks.opens |= (uint64_t)(octets[i] == '<') << i;
        marks.closes |= (uint64_t)(octets[i] == '>') << i;
        marks.is_blank |= (uint64_t)(octets[i] <= ' ') << i;
    }
    return marks;
}
#endif

/* How many words there are, or -1 without memory. What is between the end of a tag and the next one is seen by people.
 * 64 octets are looked at together: a branch at every one of them would be foreseen wrongly at every end of a word. */
static Place tell_words(const Page *page, Table *table)
{
    Place count = 0, from = -1;
    uint64_t is_between = 0; /* whether the first of the 64 is */
    for (Place block = 0; block < page->length; block += 64) {
        unsigned char last[64] = {0};
        const unsigned char *octets = page->data + block;
        if (block + 64 > page->length)
            octets = memcpy(last, octets, (size_t)(page->length - block));
        Marks marks = marks_of(octets);
        /* From where it begins, adding carries on through all that opens no tag. */
        uint64_t no_tag = ~marks.opens, begins = (marks.closes << 1 | is_between) & no_tag;
        uint64_t between = (((no_tag + begins) ^ no_tag) | begins) & no_tag;
        is_between = (between | marks.closes) >> 63;
        uint64_t in_word = between & ~marks.is_blank, before = in_word << 1 | (from >= 0);
        uint64_t starts = in_word & ~before, ends = before & ~in_word;
        for (; ends; ends &= ends - 1) {
            if (from < 0) {
                from = block + __builtin_ctzll(starts);
                starts &= starts - 1;
            }
            count++;
            if (put(table, hash_of(page, from, block + __builtin_ctzll(ends))) < 0)
                return -1;
            from = -1;
        }
        if (starts)
            from = block + __builtin_ctzll(starts);
    }
    if (from < 0)
        return count;
    return put(table, hash_of(page, from, page->length)) < 0 ? -1 : count + 1;
}

/* -- likeness ------------------------------------------------------------------------------------------------ */

/* R-MinHash as rensa 0.5 computes it (its algorithm version 2), for 64 slots: in each of three rounds a hash falls into
 * one slot, where the lowest rank stays; a later round ranks behind, and matters only while a slot is empty. What is
 * empty after all of them takes the lowest rank of all hashes, by two numbers of its own. */
enum { SLOTS = 64, ROUNDS = 3, RANK_BITS = 30 };

typedef struct {
    uint64_t seeds[ROUNDS], last_seed, factors[SLOTS], offsets[SLOTS];
} Numbers;

/* SplitMix64 */
ALWAYS uint64_t mixed(uint64_t bits)
{
    bits += FACTOR;
    bits = (bits ^ bits >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    bits = (bits ^ bits >> 27) * UINT64_C(0x94D049BB133111EB);
    return bits ^ bits >> 31;
}

ALWAYS uint64_t number_at(const char *numbers, Place at)
{
    uint64_t number;
    memcpy(&number, numbers + at * (Place)sizeof number, sizeof number);
    return number;
}

ALWAYS uint32_t lower_of(uint32_t one, uint32_t other) { return one < other ? one : other; }

static int has_empty(const uint32_t *slots, uint32_t empty)
{
    int is_so = 0;
    for (int i = 0; i < SLOTS; i++)
        is_so |= slots[i] >= empty;
    return is_so;
}

/* The last bit of every slot, the first slot's the highest. */
static uint64_t likeness_of(const char *hashes, Place count, const Numbers *numbers)
{
    uint32_t slots[SLOTS];
    memset(slots, 0xFF, sizeof slots);
    uint32_t empty = 0;
    for (int round = 0; round < ROUNDS && has_empty(slots, empty); round++) {
        for (Place i = 0; i < count; i++) {
            uint64_t bits = mixed(number_at(hashes, i) ^ numbers->seeds[round]);
            uint32_t *slot = &slots[(uint32_t)bits / (UINT32_MAX / SLOTS + 1)];
            *slot = lower_of(*slot, empty | (uint32_t)(bits >> (64 - RANK_BITS)));
        }
        empty += UINT32_C(1) << RANK_BITS;
    }
    uint64_t likeness = 0;
    for (int i = 0; i < SLOTS; i++) {
        uint32_t lowest = slots[i];
        for (Place j = 0; j < count && slots[i] >= empty; j++) {
            uint64_t bits = numbers->factors[i] * mixed(number_at(hashes, j) ^ numbers->last_seed) + numbers->offsets[i];
            lowest = lower_of(lowest, empty | (uint32_t)(bits >> (64 - RANK_BITS)));
        }
        likeness = likeness << 1 | (lowest & 1);
    }
    return likeness;
}

/* -- the module ---------------------------------------------------------------------------------------------- */

static PyObject *scan(PyObject *module, PyObject *args)
{
    PyObject *object, *unescape[2];
    Place title_length, at, most, cost = 0;
    if (!PyArg_ParseTuple(args, "SOOnnn:scan", &object, &unescape[0], &unescape[1], &title_length, &at, &most))
        return NULL;
    Page page = {(const unsigned char *)PyBytes_AS_STRING(object), PyBytes_GET_SIZE(object)};
    PyObject *found = PyList_New(0);
    if (found == NULL)
        return NULL;
    at = at < 0 ? -1 : scan_page(&page, at, found, unescape, title_length, most, &cost);
    if (at < -1) {
        Py_DECREF(found);
        return NULL;
    }
    return Py_BuildValue("Nnn", found, at, cost);
}

static PyObject *words(PyObject *module, PyObject *args)
{
    PyObject *object, *found = NULL;
    Place most;
    if (!PyArg_ParseTuple(args, "Sn:words", &object, &most))
        return NULL;
    Place length = PyBytes_GET_SIZE(object);
    Page page = {(const unsigned char *)PyBytes_AS_STRING(object), length < most ? length : most};
    /* In proportion to the page: a large table takes time to empty, a full one to search. */
    size_t places = 256;
    while (places < 4096 && places * 8 < (size_t)page.length)
        places *= 2;
    Table table = {PyMem_Calloc(places, sizeof(uint64_t)), places - 1, 0, PyMem_Malloc(places / 2 * sizeof(uint64_t))};
    Place count = table.hashes == NULL || table.in_order == NULL ? -1 : tell_words(&page, &table);
    if (count < 0)
        PyErr_NoMemory();
    else
        found = Py_BuildValue("ny#", count, (const char *)table.in_order, (Place)(table.used * sizeof(uint64_t)));
    PyMem_Free(table.hashes);
    PyMem_Free(table.in_order);
    return found;
}

static PyObject *likeness(PyObject *module, PyObject *args)
{
    PyObject *hashes, *numbers;
    if (!PyArg_ParseTuple(args, "SS:likeness", &hashes, &numbers))
        return NULL;
    Place length = PyBytes_GET_SIZE(hashes);
    if (length % sizeof(uint64_t) || PyBytes_GET_SIZE(numbers) != sizeof(Numbers)) {
        PyErr_SetString(PyExc_ValueError, "hashes and numbers are of 64 bits each");
        return NULL;
    }
    Numbers own;
    memcpy(&own, PyBytes_AS_STRING(numbers), sizeof own);
    uint64_t bits = likeness_of(PyBytes_AS_STRING(hashes), length / (Place)sizeof(uint64_t), &own);
    return PyLong_FromLongLong((long long)bits);
}

enum { FOLLOWED_AT_ONCE = 100 };

/* The links of a page from one place on, as far as they are remembered: their pages are added to those found already.
 * Returns where Python has to go on: at a link that is not remembered, at every hundredth, or where there are enough. */
static PyObject *follow(PyObject *module, PyObject *args)
{
    PyObject *hrefs, *remembered, *pages;
    Py_ssize_t place, most;
    if (!PyArg_ParseTuple(args, "O!nO!O!n:follow", &PyList_Type, &hrefs, &place, &PyDict_Type, &remembered, &PyDict_Type,
                          &pages, &most))
        return NULL;
    if (place < 0) {
        PyErr_SetString(PyExc_ValueError, "the first place is 0");
        return NULL;
    }
    for (; place < PyList_GET_SIZE(hrefs) && (place + 1) % FOLLOWED_AT_ONCE; place++) {
        PyObject *href = PyList_GET_ITEM(hrefs, place);
        if (!PyUnicode_Check(href) || PyUnicode_READY(href) < 0 || PyUnicode_KIND(href) != PyUnicode_1BYTE_KIND)
            break;
        Place length = PyUnicode_GET_LENGTH(href);
        const unsigned char *text = PyUnicode_1BYTE_DATA(href), *mark = memchr(text, '#', (size_t)length);
        /* A space before the fragment is part of the path; a space at the end of the link is not. */
        int is_cut = mark != NULL && !(mark > text && mark[-1] <= ' ');
        href = is_cut ? PyUnicode_Substring(href, 0, mark - text) : Py_NewRef(href);
        PyObject *page = href == NULL ? NULL : PyDict_GetItemWithError(remembered, href);
        Py_XDECREF(href);
        if (page == NULL)
            break;
        Py_INCREF(page);
        PyObject *url = PyObject_GetAttr(page, url_name);
        int is_known = url == NULL ? -1 : PyDict_Contains(pages, url);
        int is_full = is_known == 0 && PyDict_GET_SIZE(pages) >= most;
        if (is_known == 0 && !is_full && PyDict_SetItem(pages, url, page) < 0)
            is_known = -1;
        Py_XDECREF(url);
        Py_DECREF(page);
        if (is_known < 0 || is_full)
            break;
    }
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(place);
}

/* -- keys ---------------------------------------------------------------------------------------------------- */

/* BLAKE2b (RFC 7693) with a digest of 8 octets, as `hashlib.blake2b`. What the block of the key leaves behind is kept:
 * then a URL of up to 128 octets is one block. */
enum { BLOCK = 128, KEY_ROUNDS = 12, KEY_OCTETS = 8, LONGEST_SECRET = 64 };

static const uint64_t initial[8] = {
    UINT64_C(0x6a09e667f3bcc908), UINT64_C(0xbb67ae8584caa73b), UINT64_C(0x3c6ef372fe94f82b), UINT64_C(0xa54ff53a5f1d36f1),
    UINT64_C(0x510e527fade682d1), UINT64_C(0x9b05688c2b3e6c1f), UINT64_C(0x1f83d9abfb41bd6b), UINT64_C(0x5be0cd19137e2179),
};
static const unsigned char order[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

static struct {
    unsigned char secret[LONGEST_SECRET];
    Place length; /* -1: none has been used yet */
    uint64_t state[8];
} keyed = {.length = -1};

ALWAYS uint64_t rotated(uint64_t word, int bits) { return word >> bits | word << (64 - bits); }

ALWAYS uint64_t word_at(const unsigned char *octets)
{
    uint64_t word;
    memcpy(&word, octets, sizeof word);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

ALWAYS void mix(uint64_t *v, int a, int b, int c, int d, uint64_t x, uint64_t y)
{
    v[a] += v[b] + x, v[d] = rotated(v[d] ^ v[a], 32);
    v[c] += v[d], v[b] = rotated(v[b] ^ v[c], 24);
    v[a] += v[b] + y, v[d] = rotated(v[d] ^ v[a], 16);
    v[c] += v[d], v[b] = rotated(v[b] ^ v[c], 63);
}

/* `so_far`: octets up to the end of this block. */
static void take_block(uint64_t *state, const unsigned char *block, uint64_t so_far, int is_last)
{
    uint64_t v[16], words[16];
    for (int i = 0; i < 16; i++)
        words[i] = word_at(block + 8 * i);
    memcpy(v, state, 8 * sizeof *v);
    memcpy(v + 8, initial, sizeof initial);
    v[12] ^= so_far;
    if (is_last)
        v[14] = ~v[14];
    for (int round = 0; round < KEY_ROUNDS; round++) {
        const unsigned char *at = order[round % 10];
        mix(v, 0, 4, 8, 12, words[at[0]], words[at[1]]);
        mix(v, 1, 5, 9, 13, words[at[2]], words[at[3]]);
        mix(v, 2, 6, 10, 14, words[at[4]], words[at[5]]);
        mix(v, 3, 7, 11, 15, words[at[6]], words[at[7]]);
        mix(v, 0, 5, 10, 15, words[at[8]], words[at[9]]);
        mix(v, 1, 6, 11, 12, words[at[10]], words[at[11]]);
        mix(v, 2, 7, 8, 13, words[at[12]], words[at[13]]);
        mix(v, 3, 4, 9, 14, words[at[14]], words[at[15]]);
    }
    for (int i = 0; i < 8; i++)
        state[i] ^= v[i] ^ v[i + 8];
}

/* `is_all`: nothing but the secret follows. */
static void begin(uint64_t *state, const unsigned char *secret, Place length, int is_all)
{
    unsigned char block[BLOCK] = {0};
    memcpy(state, initial, sizeof initial);
    state[0] ^= UINT64_C(0x01010000) | (uint64_t)length << 8 | KEY_OCTETS;
    memcpy(block, secret, (size_t)length);
    if (length)
        take_block(state, block, BLOCK, is_all);
}

static uint64_t key_of_octets(const unsigned char *octets, Place length, const unsigned char *secret, Place secret_length)
{
    unsigned char block[BLOCK] = {0};
    uint64_t state[8], so_far = secret_length ? BLOCK : 0;
    if (!length && secret_length) {
        begin(state, secret, secret_length, 1);
        return state[0];
    }
    if (keyed.length != secret_length || memcmp(keyed.secret, secret, (size_t)secret_length)) {
        begin(keyed.state, secret, secret_length, 0);
        memcpy(keyed.secret, secret, (size_t)secret_length);
        keyed.length = secret_length;
    }
    memcpy(state, keyed.state, sizeof state);
    for (; length > BLOCK; octets += BLOCK, length -= BLOCK)
        take_block(state, octets, so_far += BLOCK, 0);
    memcpy(block, octets, (size_t)length);
    take_block(state, block, so_far + (uint64_t)length, 1);
    return state[0];
}

static PyObject *key_of(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_ssize_t length;
    if (count != 2 || !PyUnicode_Check(args[0]) || !PyBytes_Check(args[1]) || PyBytes_GET_SIZE(args[1]) > LONGEST_SECRET) {
        PyErr_SetString(PyExc_TypeError, "key_of(url, secret of at most 64 octets)");
        return NULL;
    }
    const char *octets = PyUnicode_AsUTF8AndSize(args[0], &length);
    if (octets == NULL)
        return NULL;
    uint64_t key = key_of_octets((const unsigned char *)octets, length, (const unsigned char *)PyBytes_AS_STRING(args[1]),
                                 PyBytes_GET_SIZE(args[1]));
    return PyLong_FromLongLong((long long)key);
}

static PyMethodDef methods[] = {
    {"key_of", (PyCFunction)(void (*)(void))key_of, METH_FASTCALL, "key_of(url, secret) -> 64 bits of BLAKE2b, signed"},
    {"follow", follow, METH_VARARGS,
     "follow(hrefs, place, remembered, pages, most) -> the place where Python has to go on"},
    {"scan", scan, METH_VARARGS, 
     "scan(octets, unescape_attribute, unescape_text, title_length, at, most) -> (elements, where to go on or -1, cost)"},
    {"words", words, METH_VARARGS, "words(octets, most) -> (how many words between tags, the hash of each, once)"},
    {"likeness", likeness, METH_VARARGS, "likeness(hashes, numbers) -> 64 bits, signed"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "headway.pages._fast", "The inner loops of reading a page.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__fast(void)
{
    PyObject *os = PyImport_ImportModule("os");
    PyObject *drawn = os == NULL ? NULL : PyObject_CallMethod(os, "urandom", "n", (Place)sizeof spread);
    Py_XDECREF(os);
    if (drawn == NULL)
        return NULL;
    memcpy(&spread, PyBytes_AS_STRING(drawn), sizeof spread);
    spread |= 1;
    Py_DECREF(drawn);
    for (int i = 0; i < ELEMENTS; i++) {
        if ((elements[i].object = PyUnicode_InternFromString(elements[i].name)) == NULL)
            return NULL;
        first_letters |= 1u << (elements[i].name[0] - 'a');
    }
    for (int i = 0; i < ATTRIBUTES; i++)
        if ((attributes[i].object = PyUnicode_InternFromString(attributes[i].name)) == NULL)
            return NULL;
    if ((text_name = PyUnicode_InternFromString("text")) == NULL
        || (url_name = PyUnicode_InternFromString("url")) == NULL)
        return NULL;
    return PyModule_Create(&definition);
}
