/* WARC records made by threads that never take Python's lock: digests of blocks, heads, gzip.
 *
 * `submit` hands over what a capture consists of, `collect` returns the finished records in the order in which they were
 * submitted. In between, threads of the pool take some captures at a time, hash their blocks side by side and compress
 * each record; `collect` helps with what none of them has taken. Without threads, on one core, some captures at a time are
 * made in place by `submit`, while their octets may still be in the processor's caches.
 *
 * gzip is that of ISA-L, whose functions the package isal carries in its module `igzip_lib`: they are looked up there,
 * since Python functions need the lock. The module is only used with version 2 of ISA-L, whose structures are fixed, and
 * after it has compressed a sample that zlib understood. `warc.py` does the same in Python; tests compare the two. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "../sha1.h"

enum { IN_ONE_GO = 8, MOST_THREADS = 16, LONG = 1 << 16 };
enum { RECORD_TYPE, DATE, TARGET, CONTENT_TYPE, PAYLOAD_DIGEST, MORE, TEXTS };
enum { HEAD, PAYLOAD, REQUEST, BLOCKS };

/* -- gzip ---------------------------------------------------------------------------------------------------------- */

/* As in isa-l's igzip_lib.h; its own state follows, which is smaller than what is set aside for it. */
typedef struct {
    const unsigned char *next_in;
    uint32_t avail_in, total_in;
    unsigned char *next_out;
    uint32_t avail_out, total_out;
    void *hufftables;
    uint32_t level, level_buf_size;
    unsigned char *level_buf;
    uint16_t end_of_stream, flush, gzip_flag, hist_bits;
    unsigned char own[1 << 18];
} Deflate;

enum { LEVEL_BUFFER = 1 << 19, WITH_GZIP_HEAD = 1, LEVEL = 1, QUICK_LEVEL = 0 };

static void (*deflate_init)(Deflate *);
static int (*deflate)(Deflate *);

/* What a thread needs, kept from batch to batch. */
typedef struct {
    Deflate stream;
    unsigned char level_buffer[LEVEL_BUFFER];
    unsigned char *plain, *packed;
    size_t plain_size, packed_size;
} Workshop;

static int make_room(unsigned char **buffer, size_t *size, size_t wanted)
{
    if (wanted <= *size)
        return 0;
    unsigned char *larger = realloc(*buffer, wanted + wanted / 2);
    if (larger == NULL)
        return -1;
    *buffer = larger;
    *size = wanted + wanted / 2;
    return 0;
}

/* Appends what `plain` holds to `packed` as one gzip member. */
static int compress_plain(Workshop *shop, size_t length, size_t *packed, int level)
{
    if (length > UINT32_MAX / 2 || make_room(&shop->packed, &shop->packed_size, *packed + length + length / 8 + 4096) < 0)
        return -1;
    Deflate *stream = &shop->stream;
    deflate_init(stream);
    stream->next_in = shop->plain;
    stream->avail_in = (uint32_t)length;
    stream->next_out = shop->packed + *packed;
    stream->avail_out = (uint32_t)(length + length / 8 + 4096);
    stream->level = (uint32_t)level;
    stream->level_buf = level == QUICK_LEVEL ? NULL : shop->level_buffer;
    stream->level_buf_size = level == QUICK_LEVEL ? 0 : LEVEL_BUFFER;
    stream->end_of_stream = 1;
    stream->flush = 0;
    stream->gzip_flag = WITH_GZIP_HEAD;
    if (deflate(stream) != 0 || stream->avail_in != 0 || stream->avail_out == 0)
        return -1;
    *packed += stream->total_out;
    return 0;
}

/* -- captures ------------------------------------------------------------------------------------------------------ */

typedef struct {
    PyObject *held[TEXTS + BLOCKS]; /* what the places below point into */
    const char *text[TEXTS];
    size_t text_length[TEXTS];
    const unsigned char *block[BLOCKS];
    size_t length[BLOCKS];
    unsigned char *records; /* the main record and, if there is one, that of the request */
    size_t main_length, records_length;
    int failed;
} Capture;

static const char hexadecimal[] = "0123456789abcdef";

/* `<urn:uuid:...>`, version 4 */
static void write_id(const unsigned char *random, char *text)
{
    unsigned char octets[16];
    memcpy(octets, random, 16);
    octets[6] = (octets[6] & 15) | 64;
    octets[8] = (octets[8] & 63) | 128;
    char *at = text;
    memcpy(at, "<urn:uuid:", 10);
    at += 10;
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *at++ = '-';
        *at++ = hexadecimal[octets[i] >> 4];
        *at++ = hexadecimal[octets[i] & 15];
    }
    *at = '>';
}

typedef struct {
    unsigned char *at;
} Writer;

static void put(Writer *writer, const void *octets, size_t length)
{
    memcpy(writer->at, octets, length);
    writer->at += length;
}

#define PUT_WORDS(writer, words) put(writer, words, sizeof(words) - 1)

static void put_number(Writer *writer, size_t number)
{
    char digits[24];
    put(writer, digits, (size_t)snprintf(digits, sizeof digits, "%zu", number));
}

static void put_text(Writer *writer, const Capture *capture, int which)
{
    put(writer, capture->text[which], capture->text_length[which]);
}

enum { UUID = 47 };

static int seal_one(Workshop *shop, Capture *capture, const char *digests, const unsigned char *random)
{
    char main_id[UUID], request_id[UUID];
    size_t length = capture->length[HEAD] + capture->length[PAYLOAD], packed = 0, texts = 1024;
    for (int i = 0; i < TEXTS; i++)
        texts += 2 * capture->text_length[i];
    write_id(random, main_id);
    write_id(random + 16, request_id);
    if (make_room(&shop->plain, &shop->plain_size, texts + length + capture->length[REQUEST]) < 0)
        return -1;
    Writer writer = {shop->plain};
    PUT_WORDS(&writer, "WARC/1.1\r\nWARC-Type: ");
    put_text(&writer, capture, RECORD_TYPE);
    PUT_WORDS(&writer, "\r\nWARC-Record-ID: ");
    put(&writer, main_id, UUID);
    PUT_WORDS(&writer, "\r\nWARC-Date: ");
    put_text(&writer, capture, DATE);
    PUT_WORDS(&writer, "\r\nWARC-Target-URI: ");
    put_text(&writer, capture, TARGET);
    PUT_WORDS(&writer, "\r\nContent-Type: ");
    put_text(&writer, capture, CONTENT_TYPE);
    PUT_WORDS(&writer, "\r\nWARC-Payload-Digest: ");
    put_text(&writer, capture, PAYLOAD_DIGEST);
    PUT_WORDS(&writer, "\r\nWARC-Block-Digest: sha1:");
    put(&writer, digests, DIGEST_CHARACTERS);
    PUT_WORDS(&writer, "\r\n");
    put_text(&writer, capture, MORE);
    PUT_WORDS(&writer, "Content-Length: ");
    put_number(&writer, length);
    PUT_WORDS(&writer, "\r\n\r\n");
    put(&writer, capture->block[HEAD], capture->length[HEAD]);
    put(&writer, capture->block[PAYLOAD], capture->length[PAYLOAD]);
    PUT_WORDS(&writer, "\r\n\r\n");
    if (compress_plain(shop, (size_t)(writer.at - shop->plain), &packed, LEVEL) < 0)
        return -1;
    capture->main_length = packed;
    if (capture->length[REQUEST]) {
        writer.at = shop->plain;
        PUT_WORDS(&writer, "WARC/1.1\r\nWARC-Type: request\r\nWARC-Record-ID: ");
        put(&writer, request_id, UUID);
        PUT_WORDS(&writer, "\r\nWARC-Date: ");
        put_text(&writer, capture, DATE);
        PUT_WORDS(&writer, "\r\nWARC-Target-URI: ");
        put_text(&writer, capture, TARGET);
        PUT_WORDS(&writer, "\r\nWARC-Concurrent-To: ");
        put(&writer, main_id, UUID);
        PUT_WORDS(&writer, "\r\nContent-Type: application/http;msgtype=request\r\nWARC-Block-Digest: sha1:");
        put(&writer, digests + DIGEST_CHARACTERS, DIGEST_CHARACTERS);
        PUT_WORDS(&writer, "\r\nContent-Length: ");
        put_number(&writer, capture->length[REQUEST]);
        PUT_WORDS(&writer, "\r\n\r\n");
        put(&writer, capture->block[REQUEST], capture->length[REQUEST]);
        PUT_WORDS(&writer, "\r\n\r\n");
        if (compress_plain(shop, (size_t)(writer.at - shop->plain), &packed, QUICK_LEVEL) < 0)
            return -1;
    }
    capture->records = malloc(packed);
    if (capture->records == NULL)
        return -1;
    memcpy(capture->records, shop->packed, packed);
    capture->records_length = packed;
    return 0;
}

static void seal(Workshop *shop, Capture **captures, size_t count)
{
    Message messages[2 * IN_ONE_GO];
    char digests[2 * IN_ONE_GO * DIGEST_CHARACTERS], pair[2 * DIGEST_CHARACTERS];
    unsigned char random[32 * IN_ONE_GO];
    int failed = getentropy(random, 32 * count) != 0;
    for (size_t i = 0; i < count; i++) { /* the long ones first: they keep each other company */
        const Capture *capture = captures[i];
        messages[i] = (Message){{capture->block[HEAD], capture->block[PAYLOAD]}, {capture->length[HEAD], capture->length[PAYLOAD]}};
        messages[count + i] = (Message){{capture->block[REQUEST], NULL}, {capture->length[REQUEST], 0}};
    }
    hash_all(best_way, messages, 2 * count, digests);
    for (size_t i = 0; i < count; i++) {
        memcpy(pair, digests + i * DIGEST_CHARACTERS, DIGEST_CHARACTERS);
        memcpy(pair + DIGEST_CHARACTERS, digests + (count + i) * DIGEST_CHARACTERS, DIGEST_CHARACTERS);
        captures[i]->failed = failed || seal_one(shop, captures[i], pair, random + 32 * i) < 0;
    }
}

/* -- the pool ------------------------------------------------------------------------------------------------------ */

typedef struct {
    PyObject_HEAD
    Capture **captures; /* in the order of `submit` */
    size_t count, room, taken, finished;
    pthread_mutex_t lock;
    pthread_cond_t has_work, has_finished;
    pthread_t threads[MOST_THREADS];
    int wanted_threads, running, is_over;
    pid_t owner;
    Workshop *own;
} Sealer;

/* With the lock held; how many were taken. */
static size_t take(Sealer *self, Capture **some)
{
    size_t count = self->count - self->taken;
    count = count < IN_ONE_GO ? count : IN_ONE_GO;
    if (count)
        memcpy(some, self->captures + self->taken, count * sizeof *some);
    self->taken += count;
    return count;
}

static void *work(void *argument)
{
    Sealer *self = argument;
    Capture *some[IN_ONE_GO];
    Workshop *shop = calloc(1, sizeof *shop);
    pthread_mutex_lock(&self->lock);
    while (shop != NULL) {
        size_t count;
        while ((count = take(self, some)) == 0 && !self->is_over)
            pthread_cond_wait(&self->has_work, &self->lock);
        if (count == 0)
            break;
        pthread_mutex_unlock(&self->lock);
        seal(shop, some, count);
        pthread_mutex_lock(&self->lock);
        self->finished += count;
        pthread_cond_signal(&self->has_finished);
    }
    pthread_mutex_unlock(&self->lock);
    if (shop != NULL) {
        free(shop->plain);
        free(shop->packed);
    }
    free(shop);
    return NULL;
}

/* What was submitted is then made in place, if no thread can be had. */
static void start_threads(Sealer *self)
{
    sigset_t all, before; /* signals are for Python's main thread */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    self->owner = getpid();
    while (self->running < self->wanted_threads
           && pthread_create(&self->threads[self->running], NULL, work, self) == 0)
        self->running++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    self->wanted_threads = self->running;
}

static void release(Capture *capture)
{
    for (int i = 0; i < TEXTS + BLOCKS; i++)
        Py_XDECREF(capture->held[i]);
    free(capture->records);
    free(capture);
}

/* Everything that no thread has taken, here, and then what they have; without Python's lock. */
static void finish(Sealer *self)
{
    Capture *some[IN_ONE_GO];
    size_t count;
    pthread_mutex_lock(&self->lock);
    while ((count = take(self, some)) > 0) {
        pthread_mutex_unlock(&self->lock);
        seal(self->own, some, count);
        pthread_mutex_lock(&self->lock);
        self->finished += count;
    }
    while (self->finished < self->taken)
        pthread_cond_wait(&self->has_finished, &self->lock);
    pthread_mutex_unlock(&self->lock);
}

static PyObject *sealer_submit(Sealer *self, PyObject *args)
{
    PyObject *held[TEXTS + BLOCKS];
    if (!PyArg_ParseTuple(args, "UUUUUUSSS:submit", &held[0], &held[1], &held[2], &held[3], &held[4], &held[5], &held[6],
                          &held[7], &held[8]))
        return NULL;
    Capture *capture = calloc(1, sizeof *capture);
    if (capture == NULL)
        return PyErr_NoMemory();
    for (int i = 0; i < TEXTS; i++) {
        Py_ssize_t length;
        if ((capture->text[i] = PyUnicode_AsUTF8AndSize(held[i], &length)) == NULL) {
            free(capture);
            return NULL;
        }
        capture->text_length[i] = (size_t)length;
    }
    for (int i = 0; i < BLOCKS; i++) {
        capture->block[i] = (const unsigned char *)PyBytes_AS_STRING(held[TEXTS + i]);
        capture->length[i] = (size_t)PyBytes_GET_SIZE(held[TEXTS + i]);
    }
    for (int i = 0; i < TEXTS + BLOCKS; i++)
        capture->held[i] = Py_NewRef(held[i]);
    pthread_mutex_lock(&self->lock);
    if (self->count == self->room) {
        size_t room = self->room ? 2 * self->room : 64;
        Capture **larger = realloc(self->captures, room * sizeof *larger);
        if (larger == NULL) {
            pthread_mutex_unlock(&self->lock);
            release(capture);
            return PyErr_NoMemory();
        }
        self->captures = larger;
        self->room = room;
    }
    self->captures[self->count++] = capture;
    size_t waiting = self->count - self->taken;
    int is_long = capture->length[PAYLOAD] > LONG;
    pthread_mutex_unlock(&self->lock);
    if (self->wanted_threads && !self->running)
        start_threads(self);
    if (waiting >= IN_ONE_GO || is_long) { /* fewer are not worth waking a thread for */
        if (self->running)
            pthread_cond_signal(&self->has_work);
        else
            finish(self);
    }
    Py_RETURN_NONE;
}

static PyObject *sealer_collect(Sealer *self, PyObject *unused)
{
    Py_BEGIN_ALLOW_THREADS
    finish(self);
    Py_END_ALLOW_THREADS
    size_t count = self->count;
    PyObject *found = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; found != NULL && i < count; i++) {
        const Capture *capture = self->captures[i];
        PyObject *pair = capture->failed ? Py_NewRef(Py_None)
                                         : Py_BuildValue("y#n", capture->records, (Py_ssize_t)capture->records_length,
                                                         (Py_ssize_t)capture->main_length);
        if (pair == NULL)
            Py_CLEAR(found);
        else
            PyList_SET_ITEM(found, (Py_ssize_t)i, pair);
    }
    if (found == NULL)
        return NULL; /* without memory: all are still here */
    pthread_mutex_lock(&self->lock); /* a thread may be looking for work */
    self->count = self->taken = self->finished = 0;
    pthread_mutex_unlock(&self->lock);
    for (size_t i = 0; i < count; i++)
        release(self->captures[i]);
    return found;
}

static void end_threads(Sealer *self)
{
    pthread_mutex_lock(&self->lock);
    self->is_over = 1;
    pthread_cond_broadcast(&self->has_work);
    pthread_mutex_unlock(&self->lock);
    if (self->owner == getpid()) /* a child of fork has none of the threads */
        for (int i = 0; i < self->running; i++)
            pthread_join(self->threads[i], NULL);
    self->running = self->wanted_threads = 0;
}

static PyObject *sealer_close(Sealer *self, PyObject *unused)
{
    Py_BEGIN_ALLOW_THREADS
    end_threads(self);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *sealer_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    int threads;
    if (!PyArg_ParseTuple(args, "i:Sealer", &threads))
        return NULL;
    if (deflate == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "load ISA-L first");
        return NULL;
    }
    Sealer *self = (Sealer *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    pthread_mutex_init(&self->lock, NULL);
    pthread_cond_init(&self->has_work, NULL);
    pthread_cond_init(&self->has_finished, NULL);
    self->wanted_threads = threads < 0 ? 0 : threads > MOST_THREADS ? MOST_THREADS : threads;
    if ((self->own = calloc(1, sizeof *self->own)) == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static void sealer_dealloc(Sealer *self)
{
    end_threads(self);
    for (size_t i = 0; i < self->count; i++)
        release(self->captures[i]);
    free(self->captures);
    if (self->own != NULL) {
        free(self->own->plain);
        free(self->own->packed);
        free(self->own);
    }
    pthread_mutex_destroy(&self->lock);
    pthread_cond_destroy(&self->has_work);
    pthread_cond_destroy(&self->has_finished);
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

/* -- heads --------------------------------------------------------------------------------------------------------- */

/* Whether a place holds these words, given in lower case, in whatever case. */
static int stands(const char *at, const char *end, const char *words, size_t length)
{
    if ((size_t)(end - at) < length)
        return 0;
    for (size_t i = 0; i < length; i++)
        if ((at[i] >= 'A' && at[i] <= 'Z' ? at[i] + 32 : at[i]) != words[i])
            return 0;
    return 1;
}

static int is_digit(char c) { return c >= '0' && c <= '9'; }

static int is_of_name(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c != 0 && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

/* Whether a head is well-formed, names no transfer coding, and no other length than its payload's. Of any other head
 * Python decides. */
static int is_plain_head(const char *at, const char *end, size_t payload)
{
    if (end - at < 14 || memcmp(at, "HTTP/1.", 7) || (at[7] != '0' && at[7] != '1') || at[8] != ' ' || !is_digit(at[9])
        || !is_digit(at[10]) || !is_digit(at[11]) || (at[12] != ' ' && at[12] != '\r'))
        return 0;
    int lengths = 0;
    for (int is_first = 1;; is_first = 0) {
        const char *line = at, *over = memchr(at, '\r', (size_t)(end - at));
        if (over == NULL || over + 1 >= end || over[1] != '\n' || memchr(line, '\n', (size_t)(over - line)) != NULL)
            return 0;
        at = over + 2;
        if (is_first)
            continue;
        if (over == line)
            return at == end;
        const char *name = line;
        while (line < over && is_of_name(*line))
            line++;
        if (line == name || line == over || *line != ':' || stands(name, over, "transfer-encoding", 17))
            return 0;
        if (!stands(name, line, "content-length", 14) || line - name != 14)
            continue;
        size_t said = 0;
        for (line++; line < over && *line == ' '; line++)
            ;
        if (line == over || (*line == '0' && over - line > 1) || over - line > 15 || lengths++)
            return 0;
        for (; line < over; line++) {
            if (!is_digit(*line))
                return 0;
            said = 10 * said + (size_t)(*line - '0');
        }
        if (said != payload)
            return 0;
    }
}

static PyObject *fits(PyObject *module, PyObject *args)
{
    const char *head;
    Py_ssize_t length, payload;
    if (!PyArg_ParseTuple(args, "y#n:fits", &head, &length, &payload))
        return NULL;
    return PyBool_FromLong(is_plain_head(head, head + length, (size_t)payload));
}

/* -- the module ---------------------------------------------------------------------------------------------------- */

static PyObject *load(PyObject *module, PyObject *args)
{
    const char *path;
    if (!PyArg_ParseTuple(args, "s:load", &path))
        return NULL;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *init = library == NULL ? NULL : dlsym(library, "isal_deflate_init");
    void *function = library == NULL ? NULL : dlsym(library, "isal_deflate");
    if (init == NULL || function == NULL)
        Py_RETURN_FALSE;
    memcpy(&deflate_init, &init, sizeof init);
    memcpy(&deflate, &function, sizeof function);
    Py_RETURN_TRUE;
}

static PyMethodDef sealer_methods[] = {
    {"submit", (PyCFunction)sealer_submit, METH_VARARGS,
     "submit(record_type, date, target, content_type, payload_digest, more_fields, head, payload, request_head)"},
    {"collect", (PyCFunction)sealer_collect, METH_NOARGS,
     "collect() -> [(records, length of the main record) or None without memory, ...]"},
    {"close", (PyCFunction)sealer_close, METH_NOARGS, "close(): ends the threads; what comes then is made in place"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot sealer_slots[] = {
    {Py_tp_new, sealer_new},
    {Py_tp_dealloc, sealer_dealloc},
    {Py_tp_methods, sealer_methods},
    {Py_tp_doc, "Sealer(threads): makes WARC records."},
    {0, NULL},
};

static PyType_Spec sealer_spec = {"headway.archive._sealer.Sealer", sizeof(Sealer), 0, Py_TPFLAGS_DEFAULT, sealer_slots};

static PyMethodDef methods[] = {
    {"fits", fits, METH_VARARGS, "fits(head, length of payload) -> whether the head can be kept as it is; if not, it may be"},
    {"load", load, METH_VARARGS, "load(path of igzip_lib) -> whether its functions were found"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "headway.archive._sealer", "WARC records without Python's lock.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__sealer(void)
{
    find_ways();
    PyObject *module = PyModule_Create(&definition);
    PyObject *type = module == NULL ? NULL : PyType_FromSpec(&sealer_spec);
    if (type == NULL || PyModule_AddObjectRef(module, "Sealer", type) < 0)
        Py_CLEAR(module);
    Py_XDECREF(type);
    return module;
}
