/* The forward pass of docs/exact.md, each weight read once for all rows of a block. Optional: `native.py`
 * compiles it where a C compiler is, and the engine takes it only after it gave the same bits as
 * the torch path. Doubles hold integers below 2^53, as there; numbers in brackets are steps.
 *
 * All layers are one call: Python's lock is free for as long as it runs, so a node signs, journals
 * and sends one round while the next is computed. */
#include <math.h>
#include <stdint.h>
#include <string.h>

/* Rows and outputs worked on together. */
enum { BLOCK = 60, PANEL = 32, MOST_TILE = 5 };

/* Vectors of LANES 16-bit integers, of the two widths that processors have. The sums of
 * MOST_TILE rows with SIDE outputs fit the registers beside what is being added;
 * AHEAD bytes of weights are asked for early, so that their reading hides behind the sums. */
#if defined(__AVX512BW__) && defined(__AVX512VL__)
#define WIDE
#include <immintrin.h>
enum { LANES = 32, SIDE = 4, AHEAD = 24576 };
#define NEAR _MM_HINT_T1
typedef __m512i Vector;

static inline Vector zero(void) { return _mm512_setzero_si512(); }
static inline Vector loaded(const int16_t *a) { return _mm512_loadu_si512(a); }
static inline void stored(int32_t *place, Vector v) { _mm512_storeu_si512(place, v); }
static inline Vector plus(Vector a, Vector b) { return _mm512_add_epi32(a, b); }
static inline Vector repeated(int32_t pair) { return _mm512_set1_epi32(pair); }
static inline Vector upper_byte(Vector a) { return _mm512_srai_epi16(a, 8); }
static inline Vector lower_byte(Vector a) { return _mm512_and_si512(a, _mm512_set1_epi16(255)); }
static inline Vector low_pairs(Vector a, Vector b) { return _mm512_unpacklo_epi16(a, b); }
static inline Vector high_pairs(Vector a, Vector b) { return _mm512_unpackhi_epi16(a, b); }

/* acc + the sums of neighbouring products, as int32 lanes. */
static inline Vector multiply_add(Vector acc, Vector a, Vector b) {
#ifdef __AVX512VNNI__
  __asm__("vpdpwssd %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));  /* gcc 12 copies acc otherwise */
  return acc;
#else
  return _mm512_add_epi32(acc, _mm512_madd_epi16(a, b));
#endif
}

/* As many weights as int16; the first 1 <= left < LANES of them, or of activations, and zeros. */
static inline Vector widened(const int8_t *w) {
  return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const void *)w));
}
static inline Vector widened_first(int64_t left, const int8_t *w) {
  return _mm512_cvtepi8_epi16(_mm256_maskz_loadu_epi8((__mmask32)((1u << left) - 1), w));
}
static inline Vector loaded_first(int64_t left, const int16_t *a) {
  return _mm512_maskz_loadu_epi16((__mmask32)((1u << left) - 1), a);
}

/* The sum of all lanes of each of four vectors. */
static inline __m128i totals(Vector a, Vector b, Vector c, Vector d) {
  __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
  __m512i all = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
  __m256i two = _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
  return _mm_add_epi32(_mm256_castsi256_si128(two), _mm256_extracti128_si256(two, 1));
}
#elif defined(__AVX2__)
#define WIDE
#include <immintrin.h>
enum { LANES = 16, SIDE = 2, AHEAD = 4096 };
#define NEAR _MM_HINT_T0
typedef __m256i Vector;

static inline Vector zero(void) { return _mm256_setzero_si256(); }
static inline Vector loaded(const int16_t *a) { return _mm256_loadu_si256((const void *)a); }
static inline void stored(int32_t *place, Vector v) { _mm256_storeu_si256((void *)place, v); }
static inline Vector plus(Vector a, Vector b) { return _mm256_add_epi32(a, b); }
static inline Vector repeated(int32_t pair) { return _mm256_set1_epi32(pair); }
static inline Vector upper_byte(Vector a) { return _mm256_srai_epi16(a, 8); }
static inline Vector lower_byte(Vector a) { return _mm256_and_si256(a, _mm256_set1_epi16(255)); }
static inline Vector low_pairs(Vector a, Vector b) { return _mm256_unpacklo_epi16(a, b); }
static inline Vector high_pairs(Vector a, Vector b) { return _mm256_unpackhi_epi16(a, b); }
static inline Vector multiply_add(Vector acc, Vector a, Vector b) {
  Vector products;  /* gcc 12 makes all products first, for which the registers do not suffice */
  __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(acc), "=&x"(products) : "x"(a), "x"(b));
  return acc;
}
static inline Vector widened(const int8_t *w) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)w));
}
static inline Vector loaded_first(int64_t left, const int16_t *a) {
  int16_t first[LANES] = {0};
  for (int64_t i = 0; i < left; i++) first[i] = a[i];
  return loaded(first);
}
static inline Vector widened_first(int64_t left, const int8_t *w) {
  int16_t first[LANES] = {0};
  for (int64_t i = 0; i < left; i++) first[i] = w[i];
  return loaded(first);
}
static inline __m128i totals(Vector a, Vector b, Vector c, Vector d) {
  __m256i ab = _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
  __m256i cd = _mm256_add_epi32(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
  __m256i all = _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
  return _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
}
#endif
#define UNROLLED _Pragma("GCC unroll 8")

/* [2] n rows of x[d] to 16-bit activations a[d]. */
void exact_norm(const double *x, int64_t n, int64_t d, const int64_t *gains, int64_t t,
                int64_t epsilon, int16_t *a) {
  for (int64_t r = 0; r < n; r++, x += d, a += d) {
    int64_t total = epsilon;
    for (int64_t i = 0; i < d; i++) {
      int64_t y = (int64_t)x[i] >> t;
      total += y * y;
    }
    int bits = 64 - __builtin_clzll((uint64_t)total);
    int q = (bits + 1) / 2;
    uint64_t square = (uint64_t)(((unsigned __int128)1 << (2 * q + 30)) / (uint64_t)total);
    int64_t v = (int64_t)sqrt((double)square);
    while ((uint64_t)(v * v) > square) v--;
    while ((uint64_t)((v + 1) * (v + 1)) <= square) v++;
    int64_t shift = t + q + 15, half = (int64_t)1 << (shift - 1);
    for (int64_t i = 0; i < d; i++)
      a[i] = (int16_t)(((int64_t)x[i] * gains[i] * v + half) >> shift);
  }
}

/* Sums of products of `rows` rows of activations, `in` apart, with four rows of weights w[0..3], over
 * the inputs from … to - 1: sums[row][4]. No sum leaves int32. `rows` is a constant where this is
 * inlined: each weight is loaded and widened once, on its way to all rows. */
#ifdef WIDE
static inline __attribute__((always_inline)) void tile(int rows, const int16_t *a, int64_t in,
                                                       const int8_t *const *w, int64_t from,
                                                       int64_t to, int32_t *sums) {
  Vector acc[MOST_TILE][4];
  int side = rows > 2 ? SIDE : 4;
  UNROLLED for (int first = 0; first < 4; first += side) {
    const int8_t *const *beside = w + first;
    Vector part[MOST_TILE][4], weights[4];
    UNROLLED for (int r = 0; r < rows; r++)
      UNROLLED for (int k = 0; k < side; k++) part[r][k] = zero();
    int64_t i = from;
    for (; i + LANES <= to; i += LANES) {
      /* Streams side by side are not foreseen by the processor; the next weights are asked for. */
      for (int at = 0; at < side * LANES; at += 64)
        _mm_prefetch(*beside + AHEAD + side * i + at, NEAR);
      UNROLLED for (int k = 0; k < side; k++) weights[k] = widened(beside[k] + i);
      UNROLLED for (int r = 0; r < rows; r++) {
        Vector row = loaded(a + r * in + i);
        UNROLLED for (int k = 0; k < side; k++)
          part[r][k] = multiply_add(part[r][k], row, weights[k]);
      }
    }
    if (i < to) {
      UNROLLED for (int k = 0; k < side; k++) weights[k] = widened_first(to - i, beside[k] + i);
      UNROLLED for (int r = 0; r < rows; r++) {
        Vector row = loaded_first(to - i, a + r * in + i);
        UNROLLED for (int k = 0; k < side; k++)
          part[r][k] = multiply_add(part[r][k], row, weights[k]);
      }
    }
    UNROLLED for (int r = 0; r < rows; r++)
      UNROLLED for (int k = 0; k < side; k++) acc[r][first + k] = part[r][k];
  }
  UNROLLED for (int r = 0; r < rows; r++)
    _mm_storeu_si128((void *)(sums + 4 * r), totals(acc[r][0], acc[r][1], acc[r][2], acc[r][3]));
}

#else
static inline __attribute__((always_inline)) void tile(int rows, const int16_t *a, int64_t in,
                                                       const int8_t *const *w, int64_t from,
                                                       int64_t to, int32_t *sums) {
  for (int k = 0; k < 4; k++) {
    int32_t acc[MOST_TILE] = {0};
    for (int64_t i = from; i < to; i++)
      for (int r = 0; r < rows; r++) acc[r] += a[r * in + i] * (int16_t)w[k][i];
    for (int r = 0; r < rows; r++) sums[4 * r + k] = acc[r];
  }
}
#endif

#if defined(__AVX512BW__) && defined(__AVX512VL__)
/* As `tile` for one row of activations: one row of weights after the other, as they lie in memory. */
static void line(const int16_t *a, const int8_t *const *w, int64_t from, int64_t to, int32_t *sums) {
  Vector acc[4];
  for (int k = 0; k < 4; k++) {
    Vector x = zero(), y = x;
    int64_t i = from;
    for (; i + 2 * LANES <= to; i += 2 * LANES) {
      _mm_prefetch(w[k] + AHEAD + i, NEAR);
      x = multiply_add(x, loaded(a + i), widened(w[k] + i));
      y = multiply_add(y, loaded(a + i + LANES), widened(w[k] + i + LANES));
    }
    for (; i + LANES <= to; i += LANES) x = multiply_add(x, loaded(a + i), widened(w[k] + i));
    if (i < to)
      y = multiply_add(y, loaded_first(to - i, a + i), widened_first(to - i, w[k] + i));
    acc[k] = plus(x, y);
  }
  _mm_storeu_si128((void *)sums, totals(acc[0], acc[1], acc[2], acc[3]));
}
#else
static void line(const int16_t *a, const int8_t *const *w, int64_t from, int64_t to, int32_t *sums) {
  tile(1, a, 0, w, from, to, sums);
}
#endif

static void tiles(int rows, const int16_t *a, int64_t in, const int8_t *const *w, int64_t from,
                  int64_t to, int32_t *sums) {
  switch (rows) {
    case 1: line(a, w, from, to, sums); break;
    case 2: tile(2, a, in, w, from, to, sums); break;
    case 3: tile(3, a, in, w, from, to, sums); break;
    case 4: tile(4, a, in, w, from, to, sums); break;
    default: tile(5, a, in, w, from, to, sums);
  }
}

/* rshift(acc * m, s) + b of n rows: y[n][out]. scale = m * 2^-s, half = b + 1/2; `exponents` 2^e of
 * each row or NULL. With `add` y is the residual stream and is added to and clamped. A sum of
 * `piece` inputs fits int32: all of them where the row's weights allow, else 512.
 *
 * A tile's rows and a panel's weights stay in the nearest caches; a panel of outputs is finished
 * together, so that the last steps run on whole vectors. */
void exact_product(const int16_t *a, int64_t n, int64_t in, const int8_t *w, int64_t out,
                   int64_t piece, const double *scale, const double *half, const double *exponents, int add,
                   double *y) {
  double acc[BLOCK][PANEL];
  for (int64_t first = 0; first < n; first += BLOCK) {
    int64_t rows = n - first < BLOCK ? n - first : BLOCK;
    int64_t count = (rows + MOST_TILE - 1) / MOST_TILE;  /* of tiles, of nearly the same height */
    for (int64_t panel = 0; panel < out; panel += PANEL) {
      int64_t width = out - panel < PANEL ? out - panel : PANEL;
      for (int64_t part = 0, r = 0; part < count; part++) {
        int64_t end = rows * (part + 1) / count;
        const int16_t *from = a + (first + r) * in;
        for (int64_t j = 0; j < width; j += 4) {
          const int8_t *four[4];
          for (int64_t k = 0; k < 4; k++)  /* beyond the last: the last again, and not used */
            four[k] = w + (panel + (j + k < width ? j + k : width - 1)) * in;
          int32_t sums[4 * MOST_TILE];
          int64_t at = 0;
          do {
            int64_t to = at + piece < in ? at + piece : in;
            tiles((int)(end - r), from, in, four, at, to, sums);
            for (int64_t i = 0; i < end - r; i++) {
              double *sum = acc[r + i] + j;
              for (int k = 0; k < 4; k++) sum[k] = sums[4 * i + k] + (at ? sum[k] : 0.0);
            }
            at = to;
          } while (at < in);
        }
        r = end;
      }
      for (int64_t r = 0; r < rows; r++) {
        double power = exponents ? exponents[first + r] : 1.0;
        double *place = y + (first + r) * out + panel;
        const double *m = scale + panel, *b = half + panel, *sum = acc[r];
        if (add)
          for (int64_t j = 0; j < width; j++) {
            double value = floor(sum[j] * power * m[j] + b[j]) + place[j];
            value = value > 2147483647.0 ? 2147483647.0 : value;
            place[j] = value < -2147483647.0 ? -2147483647.0 : value;
          }
        else
          for (int64_t j = 0; j < width; j++) place[j] = floor(sum[j] * power * m[j] + b[j]);
      }
    }
  }
}

/* [4] of `heads` heads of c in each of n rows `stride` apart, pairs side by side. rotation: n times
 * c/2 pairs (cos, sin). */
static void rotate(const double *y, int64_t n, int64_t stride, int64_t heads, int64_t c,
                   const double *rotation, int16_t *out) {
  for (int64_t r = 0; r < n; r++, rotation += c)
    for (int64_t h = 0; h < heads; h++, out += c) {
      const double *q = y + r * stride + h * c;
      for (int64_t i = 0; i < c; i += 2) {
        double u = q[i], v = q[i + 1], cosine = rotation[i], sine = rotation[i + 1];
        out[i] = (int16_t)floor((u * cosine - v * sine) * 0x1p-15 + 0.5);
        out[i + 1] = (int16_t)floor((u * sine + v * cosine) * 0x1p-15 + 0.5);
      }
    }
}

/* Neighbouring tokens of a session in memory: a store int16[layer][keys, values][head][capacity][c],
 * of which rows start … start + tokens - 1. The same rows in every layer. */
typedef struct {
  int16_t *store;
  int64_t capacity, start, tokens;
} Run;

/* The rows of one session in a pass, behind `past` tokens; its runs hold past + rows tokens. */
typedef struct {
  int64_t rows, past, runs;
} SpanRows;

typedef struct {
  int64_t hidden, heads, kv_heads, head_dim, inner, norm_shift, epsilon, exp_limit;
  const int32_t *exp_table, *sigmoid_table;
} Shape;

typedef struct {
  const int8_t *weights;
  const double *scale, *half;
  int64_t in, out, piece;
} Product;

typedef struct {
  const int64_t *attention_gains, *mlp_gains;
  const double *score_scale;
  double gate_step;
  Product qkv, out, gate_up, down;
} Layer;

/* Where a pass of n rows keeps what it works on, b the lesser of n and BLOCK: y double[max(n * (heads +
 * 2 * kv_heads) * c, b * 2 * inner)], a int16[n][hidden], q and mixed int16[n][heads * c], k
 * int16[n][kv_heads * c], inner int16[b][inner], exponents double[b], sums
 * double[c], act double[inner]; scores, p, high and low of four more than there are tokens. */
typedef struct {
  double *y, *exponents, *sums;
  int16_t *a, *q, *k, *mixed, *inner;
  int64_t *scores;
  double *act;
  int32_t *p;
  int16_t *high, *low;
} Scratch;

/* First value of a head's keys (part 0) or values (part 1) in a run's store. */
static int16_t *head_of(const Run *run, const Shape *m, int64_t layer, int64_t part, int64_t head) {
  int64_t place = ((layer * 2 + part) * m->kv_heads + head) * run->capacity + run->start;
  return run->store + place * m->head_dim;
}

/* Writes keys int16[rows][kv_heads][c] and values double[rows][.. stride ..] behind `past`. */
static void keep(const SpanRows *span, const Run *runs, const Shape *m, int64_t layer,
                 const int16_t *k, const double *v, int64_t stride) {
  int64_t c = m->head_dim, run = 0, before = 0;
  for (int64_t r = 0; r < span->rows; r++, v += stride) {
    while (span->past + r >= before + runs[run].tokens) before += runs[run++].tokens;
    int64_t at = (span->past + r - before) * c;
    for (int64_t h = 0; h < m->kv_heads; h++, k += c) {
      memcpy(head_of(runs + run, m, layer, 0, h) + at, k, (size_t)c * sizeof *k);
      int16_t *values = head_of(runs + run, m, layer, 1, h) + at;
      for (int64_t j = 0; j < c; j++) values[j] = (int16_t)v[h * c + j];
    }
  }
}

/* 0 <= v < 2^52 as a double. AVX2 has no such conversion. */
static inline double whole(int64_t v) {
  union { int64_t bits; double value; } made = {v + 0x4330000000000000};
  return made.value - 0x1p52;
}

/* Attention weights p of `seen` scores, their sum returned. */
static double weigh(const int64_t *scores, int64_t seen, int64_t top, double scale, const Shape *m,
                    int32_t *p) {
  int64_t total = 0;
  for (int64_t i = 0; i < seen; i++) {
    double delta = whole(top - scores[i]) * scale, limit = (double)m->exp_limit;
    p[i] = (int32_t)(delta < limit ? delta : limit);
  }
  for (int64_t i = 0; i < seen; i++) total += p[i] = m->exp_table[p[i]];
  return (double)total;
}

#ifdef WIDE
/* The larger of each of four. */
static inline __m256i largest(__m256i a, __m256i b) {
  return _mm256_blendv_epi8(a, b, _mm256_cmpgt_epi64(b, a));
}

/* Four scores q.k of one query with the tokens k[0..3], c = LANES * blocks <= 256 channels each. q = 256
 * high + low, so that no sum of 16-bit products leaves int32: 256 * 255 * 32767 < 2^31. */
static inline __attribute__((always_inline)) __m256i four_scores(int blocks, const Vector *high,
                                                                 const Vector *low,
                                                                 const int16_t *const *k) {
  Vector upper[4], lower[4];
  UNROLLED for (int i = 0; i < 4; i++) {
    upper[i] = lower[i] = zero();
    UNROLLED for (int b = 0; b < blocks; b++) {
      Vector keys = loaded(k[i] + LANES * b);
      upper[i] = multiply_add(upper[i], high[b], keys);
      lower[i] = multiply_add(lower[i], low[b], keys);
    }
  }
  __m256i coarse = _mm256_cvtepi32_epi64(totals(upper[0], upper[1], upper[2], upper[3]));
  __m256i fine = _mm256_cvtepi32_epi64(totals(lower[0], lower[1], lower[2], lower[3]));
  return _mm256_add_epi64(_mm256_slli_epi64(coarse, 8), fine);
}

/* Scores of one query with `tokens` keys, the largest of them and `top` returned. Writes up to three
 * more places of `scores`. */
static inline __attribute__((always_inline)) int64_t run_scores(int blocks, const int16_t *q,
                                                                const int16_t *k, int64_t tokens,
                                                                int64_t top, int64_t *scores) {
  int64_t c = LANES * blocks;
  Vector high[256 / LANES], low[256 / LANES];
  UNROLLED for (int b = 0; b < blocks; b++) {
    Vector part = loaded(q + LANES * b);
    high[b] = upper_byte(part);
    low[b] = lower_byte(part);
  }
  __m256i most = _mm256_set1_epi64x(top);
  for (int64_t i = 0; i < tokens; i += 4) {
    const int16_t *four[4];
    for (int64_t j = 0; j < 4; j++) four[j] = k + (i + j < tokens ? i + j : tokens - 1) * c;
    __m256i found = four_scores(blocks, high, low, four);
    most = largest(most, found);
    _mm256_storeu_si256((void *)(scores + i), found);
  }
  int64_t each[4];
  _mm256_storeu_si256((void *)each, most);
  for (int j = 0; j < 4; j++) top = each[j] > top ? each[j] : top;
  return top;
}

static int64_t scores_of(int64_t c, const int16_t *q, const int16_t *k, int64_t tokens, int64_t top,
                         int64_t *scores) {
  switch (c) {
    case 32: return run_scores(32 / LANES, q, k, tokens, top, scores);
    case 64: return run_scores(64 / LANES, q, k, tokens, top, scores);
    case 96: return run_scores(96 / LANES, q, k, tokens, top, scores);
    case 128: return run_scores(128 / LANES, q, k, tokens, top, scores);
    default: return run_scores(256 / LANES, q, k, tokens, top, scores);
  }
}

static int has_wide_scores(int64_t c) { return (c <= 128 && c % 32 == 0) || c == 256; }

/* Adds p.v of two neighbouring tokens, whose p = 1024 high + low are each a pair, to four sums: high and
 * low of the channels that unpacking takes first, then of the others. */
static inline __attribute__((always_inline)) void add_pair(const int16_t *high, const int16_t *low,
                                                           Vector one, Vector two, Vector *acc) {
  int32_t upper, lower;
  memcpy(&upper, high, sizeof upper);
  memcpy(&lower, low, sizeof lower);
  Vector first = low_pairs(one, two), second = high_pairs(one, two);
  acc[0] = multiply_add(acc[0], repeated(upper), first);
  acc[1] = multiply_add(acc[1], repeated(lower), first);
  acc[2] = multiply_add(acc[2], repeated(upper), second);
  acc[3] = multiply_add(acc[3], repeated(lower), second);
}

/* Adds sums of p.v over `tokens` tokens to double sums[c], c a multiple of LANES. p = 1024 high + low <=
 * 2^19; 32 tokens fit int32: 32 * 1023 * 32767 < 2^31. Reads one p more. Channels are summed in the
 * order in which pairs come out of the unpacking. */
static void run_values(int64_t c, const int16_t *high, const int16_t *low, const int16_t *v,
                       int64_t tokens, double *sums) {
  enum { PAIRS = LANES / 2 };
  for (int64_t block = 0; block < c; block += LANES, v += LANES, sums += LANES)
    for (int64_t from = 0; from < tokens; from += 32) {
      int64_t to = from + 32 < tokens ? from + 32 : tokens, i = from;
      Vector acc[4] = {zero(), zero(), zero(), zero()};
      for (; i + 2 <= to; i += 2)
        add_pair(high + i, low + i, loaded(v + i * c), loaded(v + (i + 1) * c), acc);
      if (i < to) add_pair(high + i, low + i, loaded(v + i * c), zero(), acc);
      int32_t parts[4][PAIRS];
      UNROLLED for (int j = 0; j < 4; j++) stored(parts[j], acc[j]);
      for (int j = 0; j < PAIRS; j++) {
        sums[j] += 1024.0 * parts[0][j] + parts[1][j];
        sums[PAIRS + j] += 1024.0 * parts[2][j] + parts[3][j];
      }
    }
}

/* Where a channel stands in such sums: unpacking takes 4 of 8 channels of each 128 bits, then the others. */
static inline int64_t place_of(int64_t j) {
  return (j & -LANES) + (j & 4) * (LANES / 8) + ((j & (LANES - 8)) >> 1) + (j & 3);
}
#endif

/* [5] of one query with all keys and values of a head up to `seen`: a[c]. */
static void attend_one(const Run *runs, const Shape *m, int64_t layer, int64_t head, int64_t seen,
                       const int16_t *q, double scale, const Scratch *t, int16_t *a) {
  int64_t c = m->head_dim, top = INT64_MIN, at = 0;
  for (const Run *run = runs; at < seen; run++) {
    const int16_t *k = head_of(run, m, layer, 0, head);
    int64_t tokens = run->tokens < seen - at ? run->tokens : seen - at;
#ifdef WIDE
    if (has_wide_scores(c)) {
      top = scores_of(c, q, k, tokens, top, t->scores + at);
      at += tokens;
      continue;
    }
#endif
    for (int64_t i = 0; i < tokens; i++, at++, k += c) {
      int64_t s = 0;
      for (int64_t j = 0; j < c; j++) s += (int32_t)q[j] * (int32_t)k[j];
      t->scores[at] = s;
      top = s > top ? s : top;
    }
  }
  double total = weigh(t->scores, seen, top, scale, m, t->p);
  double *sums = t->sums;
  for (int64_t j = 0; j < c; j++) sums[j] = 0.0;
#ifdef WIDE
  int wide = c % LANES == 0;
  if (wide)
    for (int64_t i = 0; i < seen; i++) {
      t->high[i] = (int16_t)(t->p[i] >> 10);
      t->low[i] = (int16_t)(t->p[i] & 1023);
    }
#endif
  at = 0;
  for (const Run *run = runs; at < seen; run++) {
    const int16_t *v = head_of(run, m, layer, 1, head);
    int64_t tokens = run->tokens < seen - at ? run->tokens : seen - at;
#ifdef WIDE
    if (wide) {
      run_values(c, t->high + at, t->low + at, v, tokens, sums);
      at += tokens;
      continue;
    }
#endif
    for (int64_t i = 0; i < tokens; i++, at++, v += c) {
      double p = (double)t->p[at];
      if (p == 0.0) continue;
      for (int64_t j = 0; j < c; j++) sums[j] += p * v[j];
    }
  }
  for (int64_t j = 0; j < c; j++) sums[j] = floor((sums[j] + 0.5 * total) / total);
#ifdef WIDE
  if (wide) {
    for (int64_t j = 0; j < c; j++) a[j] = (int16_t)sums[place_of(j)];
    return;
  }
#endif
  for (int64_t j = 0; j < c; j++) a[j] = (int16_t)sums[j];
}

/* [5] of one span. q and a int16[rows][heads][c]; row i sees past + i + 1 tokens. */
static void attend(const SpanRows *span, const Run *runs, const Shape *m, int64_t layer,
                   const int16_t *q, const double *score_scale, const Scratch *t, int16_t *a) {
  int64_t c = m->head_dim, group = m->heads / m->kv_heads;
  for (int64_t r = 0; r < span->rows; r++)
    for (int64_t h = 0; h < m->heads; h++, q += c, a += c)
      attend_one(runs, m, layer, h / group, span->past + r + 1, q, score_scale[h], t, a);
}

/* [7] gate and up [n][2f] to a int16[n][f] and 2^e of each row. act: scratch of f doubles, which hold
 * integers below 2^52. */
void exact_activate(const double *both, int64_t n, int64_t f, double gate_step,
                    const int32_t *sigmoid, double *act, double *exponents, int16_t *a) {
  for (int64_t r = 0; r < n; r++, both += 2 * f, a += f) {
    double most = 0.0;
    for (int64_t i = 0; i < f; i++) {
      double z = floor(both[i] * gate_step) + 32768.0;
      z = z < 0.0 ? 0.0 : z > 65535.0 ? 65535.0 : z;
      act[i] = (double)sigmoid[(int32_t)z] * both[i] * both[f + i];
    }
    for (int64_t i = 0; i < f; i++) {
      double size = fabs(act[i]);
      most = size > most ? size : most;
    }
    int64_t top = (int64_t)most;
    int bits = top ? 64 - __builtin_clzll((uint64_t)top) : 0;
    int e = bits > 15 ? bits - 15 : 0;
    int64_t half = ((int64_t)1 << e) >> 1;
    if (((top + half) >> e) > 32639) e++;
    exponents[r] = ldexp(1.0, e);
    double down = ldexp(1.0, -e);
    for (int64_t i = 0; i < f; i++) a[i] = (int16_t)(int32_t)floor(act[i] * down + 0.5);
  }
}

static void product(const Product *w, const int16_t *a, int64_t n, const double *exponents, int add,
                    double *y) {
  exact_product(a, n, w->in, w->weights, w->out, w->piece, w->scale, w->half, exponents, add, y);
}

/* [2] to [7] of all layers over the residual stream x[n][hidden] of `spans` sessions, whose runs
 * follow one another. rotation: n times c/2 pairs (cos, sin). */
void exact_layers(const Layer *layers, int64_t count, const Shape *m, const SpanRows *spans,
                  int64_t sessions, const Run *runs, const double *rotation, const Scratch *t,
                  double *x) {
  int64_t c = m->head_dim, turned = (m->heads + m->kv_heads) * c, width = turned + m->kv_heads * c;
  int64_t n = 0;
  for (int64_t s = 0; s < sessions; s++) n += spans[s].rows;
  for (int64_t number = 0; number < count; number++) {
    const Layer *layer = layers + number;
    exact_norm(x, n, m->hidden, layer->attention_gains, m->norm_shift, m->epsilon, t->a);
    product(&layer->qkv, t->a, n, 0, 0, t->y);
    rotate(t->y, n, width, m->heads, c, rotation, t->q);
    rotate(t->y + m->heads * c, n, width, m->kv_heads, c, rotation, t->k);
    const Run *run = runs;
    int64_t at = 0;
    for (int64_t s = 0; s < sessions; s++) {
      int64_t row = at * m->heads * c;
      keep(spans + s, run, m, number, t->k + at * m->kv_heads * c, t->y + at * width + turned, width);
      attend(spans + s, run, m, number, t->q + row, layer->score_scale, t, t->mixed + row);
      at += spans[s].rows;
      run += spans[s].runs;
    }
    product(&layer->out, t->mixed, n, 0, 1, x);
    for (int64_t first = 0; first < n; first += BLOCK) {  /* what is wide stays in the cache */
      int64_t rows = n - first < BLOCK ? n - first : BLOCK;
      double *part = x + first * m->hidden;
      exact_norm(part, rows, m->hidden, layer->mlp_gains, m->norm_shift, m->epsilon, t->a);
      product(&layer->gate_up, t->a, rows, 0, 0, t->y);
      exact_activate(t->y, rows, m->inner, layer->gate_step, m->sigmoid_table, t->act,
                     t->exponents, t->inner);
      product(&layer->down, t->inner, rows, t->exponents, 1, part);
    }
  }
}
