/* SHA-1 of many messages at once, in base32 as archives write it. Without Python, for threads that never take its lock.
 *
 * One SHA-1 cannot use more than a fraction of a processor, because each step waits for the last. So messages are
 * hashed side by side: two with the SHA instructions where the processor has them, otherwise eight with AVX2, a lane of
 * the registers for each, or four in whatever vectors the processor has. Which is used is decided at run time, so that a
 * module built here runs on a processor with less. Measured for a page of 15 KB
 * of many, all on one processor: hashlib (with SHA instructions) 7.2 us, in pairs 4.1, in eights 5.3, in fours 10.5, one
 * after the other 22. */

#ifndef HEADWAY_SHA1_H
#define HEADWAY_SHA1_H

#include <stdint.h>
#include <string.h>
#if defined(__x86_64__) && defined(__GNUC__)
#define HAS_X86 1
#include <immintrin.h>
#endif

enum { BLOCK = 64, WORDS = 5, MOST_LANES = 8, DIGEST_CHARACTERS = 32 };
enum { AUTO, PAIRS, EIGHTS, FOURS, SINGLE };

static const uint32_t first_state[WORDS] = {0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0};

/* -- one message, given in two parts ---------------------------------------------------------------------------- */

typedef struct {
    const unsigned char *part[2];
    size_t length[2];
} Message;

typedef struct {
    uint32_t state[WORDS];
    const Message *message;
    size_t place;             /* of the message's octets, those that are in the state */
    unsigned char copied[2 * BLOCK]; /* a block across the two parts, or the end with its padding */
    size_t copied_blocks, copied_used;
    int ends; /* whether what was copied is the end */
} Stream;

static void begin(Stream *stream, const Message *message)
{
    memcpy(stream->state, first_state, sizeof first_state);
    stream->message = message;
    stream->place = stream->copied_blocks = stream->copied_used = 0;
    stream->ends = 0;
}

/* How many blocks can be read in a row, and where; 0 when the message is hashed. */
static size_t blocks_at(Stream *stream, const unsigned char **at)
{
    const Message *message = stream->message;
    size_t first = message->length[0], whole = first + message->length[1], place = stream->place;
    if (stream->copied_used < stream->copied_blocks) {
        *at = stream->copied + stream->copied_used * BLOCK;
        return stream->copied_blocks - stream->copied_used;
    }
    if (stream->ends)
        return 0;
    if (place < first && first - place >= BLOCK) {
        *at = message->part[0] + place;
        return (first - place) / BLOCK;
    }
    if (place >= first && whole - place >= BLOCK) {
        *at = message->part[1] + (place - first);
        return (whole - place) / BLOCK;
    }
    size_t rest = whole - place, taken = rest < BLOCK ? rest : BLOCK;
    size_t of_first = place < first ? first - place : 0;
    of_first = of_first < taken ? of_first : taken;
    memset(stream->copied, 0, sizeof stream->copied);
    if (of_first)
        memcpy(stream->copied, message->part[0] + place, of_first);
    if (taken > of_first)
        memcpy(stream->copied + of_first, message->part[1] + (place + of_first - first), taken - of_first);
    stream->copied_used = 0;
    stream->copied_blocks = 1;
    if (taken < BLOCK) {
        stream->ends = 1;
        stream->copied[taken] = 0x80;
        stream->copied_blocks = taken + 1 + 8 <= BLOCK ? 1 : 2;
        uint64_t bits = (uint64_t)whole * 8;
        for (int i = 0; i < 8; i++)
            stream->copied[stream->copied_blocks * BLOCK - 1 - (size_t)i] = (unsigned char)(bits >> 8 * i);
    }
    *at = stream->copied;
    return stream->copied_blocks;
}

static void advance(Stream *stream, size_t blocks)
{
    if (stream->copied_used < stream->copied_blocks) {
        stream->copied_used += blocks;
        if (!stream->ends && stream->copied_used == stream->copied_blocks)
            stream->place += BLOCK;
        return;
    }
    stream->place += blocks * BLOCK;
}

/* -- blocks into states -------------------------------------------------------------------------------------------- */

static inline uint32_t word_at(const unsigned char *octets)
{
    uint32_t word;
    memcpy(&word, octets, 4);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    word = __builtin_bswap32(word);
#endif
    return word;
}

/* All rounds for words of any type: numbers, or vectors of numbers with a message in each lane. */
#define TURNED(x, n) ((x) << (n) | (x) >> (32 - (n)))
#define ROUND(f, k, word)                                        \
    do {                                                         \
        t = TURNED(a, 5) + (f) + e + (word) + (uint32_t)(k);     \
        e = d, d = c, c = TURNED(b, 30), b = a, a = t;           \
    } while (0)
#define NEXT(i) (w[(i) & 15] = TURNED(w[((i) + 13) & 15] ^ w[((i) + 8) & 15] ^ w[((i) + 2) & 15] ^ w[(i) & 15], 1))
#define ALL_ROUNDS()                                                        \
    do {                                                                    \
        for (int i = 0; i < 16; i++)                                        \
            ROUND(d ^ (b & (c ^ d)), 0x5A827999, w[i]);                     \
        for (int i = 16; i < 20; i++)                                       \
            ROUND(d ^ (b & (c ^ d)), 0x5A827999, NEXT(i));                  \
        for (int i = 20; i < 40; i++)                                       \
            ROUND(b ^ c ^ d, 0x6ED9EBA1, NEXT(i));                          \
        for (int i = 40; i < 60; i++)                                       \
            ROUND((b & c) | (d & (b | c)), 0x8F1BBCDC, NEXT(i));            \
        for (int i = 60; i < 80; i++)                                       \
            ROUND(b ^ c ^ d, 0xCA62C1D6, NEXT(i));                          \
    } while (0)

#define UNROLLED __attribute__((optimize("O3", "unroll-loops")))

UNROLLED static void hash_single(uint32_t *state, const unsigned char *at, size_t blocks)
{
    for (; blocks; blocks--, at += BLOCK) {
        uint32_t w[16], t, a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
        for (int i = 0; i < 16; i++)
            w[i] = word_at(at + 4 * i);
        ALL_ROUNDS();
        state[0] += a, state[1] += b, state[2] += c, state[3] += d, state[4] += e;
    }
}

/* A function for so many lanes. A lane without a message reads the same block all the time. */
#define IN_LANES(name, target, LANES)                                                                                \
    target UNROLLED static void name(uint32_t **states, const unsigned char **at, const size_t *strides, size_t blocks) \
    {                                                                                                                \
        typedef uint32_t Lanes __attribute__((vector_size(4 * LANES)));                                              \
        Lanes state[WORDS];                                                                                          \
        for (int i = 0; i < WORDS; i++)                                                                              \
            for (int lane = 0; lane < LANES; lane++)                                                                 \
                state[i][lane] = states[lane][i];                                                                    \
        for (size_t block = 0; block < blocks; block++) {                                                            \
            Lanes w[16], t, a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];                    \
            for (int i = 0; i < 16; i++)                                                                             \
                for (int lane = 0; lane < LANES; lane++)                                                             \
                    w[i][lane] = word_at(at[lane] + block * strides[lane] + 4 * i);                                  \
            ALL_ROUNDS();                                                                                            \
            state[0] += a, state[1] += b, state[2] += c, state[3] += d, state[4] += e;                               \
        }                                                                                                            \
        for (int i = 0; i < WORDS; i++)                                                                              \
            for (int lane = 0; lane < LANES; lane++)                                                                 \
                states[lane][i] = state[i][lane];                                                                    \
    }

IN_LANES(hash_four, , 4)
#ifdef HAS_X86
IN_LANES(hash_eight, __attribute__((target("avx2"))), 8)

#define WITH_SHA __attribute__((target("sha,sse4.1,ssse3")))

typedef struct {
    __m128i abcd, e;
} Registers;

/* Four rounds at a time, for each of so many messages: while one waits for its registers, another uses the unit. All
 * loops but that over blocks are unrolled, so that each of the words has a register. */
#define WITH_INSTRUCTIONS(name, COUNT)                                                                  \
    WITH_SHA static void name(uint32_t **states, const unsigned char **at, size_t blocks)               \
    {                                                                                                   \
        const __m128i turn = _mm_set_epi64x(0x0001020304050607LL, 0x08090a0b0c0d0e0fLL);                \
        Registers r[COUNT], saved[COUNT];                                                               \
        __m128i w[COUNT][4];                                                                            \
        EACH(m, COUNT)                                                                                  \
        {                                                                                               \
            r[m].abcd = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)states[m]), 0x1B);           \
            r[m].e = _mm_set_epi32((int)states[m][4], 0, 0, 0);                                         \
        }                                                                                               \
        for (size_t block = 0; block < blocks; block++) {                                               \
            EACH(m, COUNT)                                                                              \
            {                                                                                           \
                const __m128i *octets = (const __m128i *)(at[m] + block * BLOCK);                       \
                saved[m] = r[m];                                                                        \
                EACH(i, 4)                                                                              \
                w[m][i] = _mm_shuffle_epi8(_mm_loadu_si128(octets + i), turn);                          \
            }                                                                                           \
            EACH(group, 20)                                                                             \
            EACH(m, COUNT)                                                                              \
            {                                                                                           \
                __m128i before = r[m].abcd, *own = w[m];                                                \
                r[m].e = group ? _mm_sha1nexte_epu32(r[m].e, own[group & 3]) : _mm_add_epi32(r[m].e, own[0]); \
                r[m].abcd = group < 5    ? _mm_sha1rnds4_epu32(r[m].abcd, r[m].e, 0)                    \
                            : group < 10 ? _mm_sha1rnds4_epu32(r[m].abcd, r[m].e, 1)                    \
                            : group < 15 ? _mm_sha1rnds4_epu32(r[m].abcd, r[m].e, 2)                    \
                                         : _mm_sha1rnds4_epu32(r[m].abcd, r[m].e, 3);                   \
                r[m].e = before;                                                                        \
                if (group < 16) {                                                                       \
                    __m128i next = _mm_sha1msg1_epu32(own[group & 3], own[(group + 1) & 3]);            \
                    next = _mm_xor_si128(next, own[(group + 2) & 3]);                                   \
                    own[group & 3] = _mm_sha1msg2_epu32(next, own[(group + 3) & 3]);                    \
                }                                                                                       \
            }                                                                                           \
            EACH(m, COUNT)                                                                              \
            {                                                                                           \
                r[m].e = _mm_sha1nexte_epu32(r[m].e, saved[m].e);                                       \
                r[m].abcd = _mm_add_epi32(r[m].abcd, saved[m].abcd);                                    \
            }                                                                                           \
        }                                                                                               \
        EACH(m, COUNT)                                                                                  \
        {                                                                                               \
            _mm_storeu_si128((__m128i *)states[m], _mm_shuffle_epi32(r[m].abcd, 0x1B));                 \
            states[m][4] = (uint32_t)_mm_extract_epi32(r[m].e, 3);                                      \
        }                                                                                               \
    }

#define EACH(i, count) _Pragma("GCC unroll 20") for (int i = 0; i < (count); i++)

WITH_INSTRUCTIONS(hash_one, 1)
WITH_INSTRUCTIONS(hash_pair, 2)
#endif

/* -- many messages -------------------------------------------------------------------------------------------------- */

static int possible[SINGLE + 1], best_way = SINGLE;

static int find_out(int way)
{
#ifdef HAS_X86
    unsigned a, b, c, d;
    __builtin_cpu_init();
    if (way == PAIRS) {
        if (!__builtin_cpu_supports("sse4.1") || !__builtin_cpu_supports("ssse3"))
            return 0;
        __asm__("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(0), "c"(0));
        if (a < 7)
            return 0;
        __asm__("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(7), "c"(0));
        return b >> 29 & 1;
    }
    if (way == EIGHTS)
        return __builtin_cpu_supports("avx2") != 0;
#else
    if (way == PAIRS || way == EIGHTS)
        return 0;
#endif
    return way == FOURS || way == SINGLE;
}

/* Once: asking takes microseconds in a virtual machine. */
static void find_ways(void)
{
    for (int way = SINGLE; way > AUTO; way--)
        if ((possible[way] = find_out(way)))
            best_way = way;
}

static void compress(int way, Stream **lanes, int active, const unsigned char **at, size_t blocks)
{
    static const unsigned char nothing[BLOCK];
    uint32_t unused[WORDS] = {0}, *states[MOST_LANES];
    size_t strides[MOST_LANES];
    for (int lane = 0; lane < MOST_LANES; lane++) {
        states[lane] = lane < active ? lanes[lane]->state : unused;
        strides[lane] = lane < active ? BLOCK : 0;
        if (lane >= active)
            at[lane] = nothing;
    }
#ifdef HAS_X86
    if (way == PAIRS) {
        (active == 2 ? hash_pair : hash_one)(states, at, blocks);
        return;
    }
    if (way == EIGHTS && active > 2) {
        hash_eight(states, at, strides, blocks);
        return;
    }
#endif
    if (way == FOURS && active > 1) { /* two lanes of four are as fast as one message after the other */
        hash_four(states, at, strides, blocks);
        return;
    }
    for (int lane = 0; lane < active; lane++)
        hash_single(states[lane], at[lane], blocks);
}

static void write_digest(const uint32_t *state, char *text)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    unsigned char octets[20];
    for (int i = 0; i < 20; i++)
        octets[i] = (unsigned char)(state[i / 4] >> (24 - 8 * (i % 4)));
    for (int group = 0; group < 4; group++) {
        uint64_t bits = 0;
        for (int i = 0; i < 5; i++)
            bits = bits << 8 | octets[5 * group + i];
        for (int i = 0; i < 8; i++)
            text[8 * group + i] = letters[bits >> (35 - 5 * i) & 31];
    }
}

/* A lane that has finished takes the next message, so that all of them are busy until the last ones. */
static void hash_all(int way, const Message *messages, size_t count, char *texts)
{
    Stream streams[MOST_LANES], *lanes[MOST_LANES];
    size_t of_lane[MOST_LANES], next = 0;
    int width = way == PAIRS ? 2 : way == EIGHTS ? 8 : way == FOURS ? 4 : 1, active = 0;
    for (; active < width && next < count; active++, next++) {
        lanes[active] = &streams[active];
        of_lane[active] = next;
        begin(lanes[active], &messages[next]);
    }
    while (active) {
        const unsigned char *at[MOST_LANES];
        size_t blocks = SIZE_MAX;
        for (int lane = 0; lane < active; lane++) {
            size_t here = blocks_at(lanes[lane], &at[lane]);
            if (here == 0) {
                write_digest(lanes[lane]->state, texts + of_lane[lane] * DIGEST_CHARACTERS);
                if (next < count) {
                    of_lane[lane] = next;
                    begin(lanes[lane], &messages[next++]);
                } else {
                    active--;
                    Stream *over = lanes[lane];
                    lanes[lane] = lanes[active], lanes[active] = over;
                    of_lane[lane] = of_lane[active];
                }
                lane--;
                continue;
            }
            blocks = here < blocks ? here : blocks;
        }
        if (!active)
            break;
        compress(way, lanes, active, at, blocks);
        for (int lane = 0; lane < active; lane++)
            advance(lanes[lane], blocks);
    }
}

#endif
