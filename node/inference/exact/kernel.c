/* The forward pass of docs/exact.md for a few rows, one weight read per pass. Optional: `native.py`
 * compiles it where a C compiler is, and the engine takes it only after it gave the same bits as
 * the torch path. Doubles hold integers below 2^53, as there; numbers in brackets are steps.
 *
 * All layers are one call: Python's lock is free for as long as it runs, so a node signs, journals
 * and sends one round while the next is computed. */
#include <math.h>
#include <stdint.h>
#include <string.h>

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

/* Sums over `in` inputs of up to four rows of activations with one row of weights: each weight is
 * loaded and widened once, on its way to all of them. `rows` is a constant where this is inlined. */
static inline __attribute__((always_inline)) void dots(int rows, const int16_t *a, int64_t step,
                                                       const int8_t *w, int64_t in, int64_t piece,
                                                       int64_t *acc) {
  for (int r = 0; r < rows; r++) acc[r] = 0;
  for (int64_t at = 0; at < in; at += piece) {
    int64_t end = at + piece < in ? at + piece : in;
    int32_t sums[4] = {0};
    for (int64_t i = at; i < end; i++)
      for (int r = 0; r < rows; r++) sums[r] += a[r * step + i] * (int16_t)w[i];
    for (int r = 0; r < rows; r++) acc[r] += sums[r];
  }
}

/* rshift(acc * m, s) + b of n <= 64 rows: y[n][out]. scale = m * 2^-s, half = b + 1/2; `exponents`
 * 2^e of each row or NULL. With `add` y is the residual stream and is added to and clamped. A sum of
 * `piece` inputs fits int32: all of them where the row's weights allow, else 512. */
void exact_product(const int16_t *a, int64_t n, int64_t in, const int8_t *w, int64_t out,
                   int64_t piece, const double *scale, const double *half, const double *exponents, int add,
                   double *y) {
  int64_t acc[64];
  for (int64_t j = 0; j < out; j++, w += in) {
    int64_t r = 0;
    for (; r + 4 <= n; r += 4) dots(4, a + r * in, in, w, in, piece, acc + r);
    if (n - r == 3) dots(3, a + r * in, in, w, in, piece, acc + r);
    if (n - r == 2) dots(2, a + r * in, in, w, in, piece, acc + r);
    if (n - r == 1) dots(1, a + r * in, in, w, in, piece, acc + r);
    for (r = 0; r < n; r++) {
      double value = floor((double)acc[r] * (exponents ? exponents[r] : 1.0) * scale[j] + half[j]);
      double *place = y + r * out + j;
      if (add) {
        value += *place;
        value = value > 2147483647.0 ? 2147483647.0 : value < -2147483647.0 ? -2147483647.0 : value;
      }
      *place = value;
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
  const int64_t *exp_table, *sigmoid_table;
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

/* Where a pass keeps what it works on: y double[n][wide], a int16[n][hidden], q and mixed
 * int16[n][heads * c], k int16[n][kv_heads * c], inner int16[n][inner], exponents double[n], scores,
 * sums and act of as many int64 as there are tokens, as c and as inner. */
typedef struct {
  double *y, *exponents;
  int16_t *a, *q, *k, *mixed, *inner;
  int64_t *scores, *sums, *act;
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

/* [5] of one span. q and a int16[rows][heads][c]; row i sees past + i + 1 tokens. */
static void attend(const SpanRows *span, const Run *runs, const Shape *m, int64_t layer,
                   const int16_t *q, const double *score_scale, const Scratch *t, int16_t *a) {
  int64_t c = m->head_dim, *scores = t->scores, *sums = t->sums;
  for (int64_t r = 0; r < span->rows; r++)
    for (int64_t h = 0; h < m->heads; h++, q += c, a += c) {
      int64_t kv = h / (m->heads / m->kv_heads), seen = span->past + r + 1, at = 0;
      int64_t top = INT64_MIN, total = 0;
      for (int64_t run = 0; run < span->runs && at < seen; run++) {
        const int16_t *k = head_of(runs + run, m, layer, 0, kv);
        for (int64_t i = 0; i < runs[run].tokens && at < seen; i++, at++, k += c) {
          int64_t s = 0;
          for (int64_t j = 0; j < c; j++) s += (int32_t)q[j] * (int32_t)k[j];
          scores[at] = s;
          top = s > top ? s : top;
        }
      }
      for (int64_t j = 0; j < c; j++) sums[j] = 0;
      at = 0;
      for (int64_t run = 0; run < span->runs && at < seen; run++) {
        const int16_t *v = head_of(runs + run, m, layer, 1, kv);
        for (int64_t i = 0; i < runs[run].tokens && at < seen; i++, at++, v += c) {
          double delta = (double)(top - scores[at]) * score_scale[h];
          if (delta >= (double)m->exp_limit) continue;
          int64_t p = m->exp_table[(int64_t)delta];
          total += p;
          for (int64_t j = 0; j < c; j++) sums[j] += p * v[j];
        }
      }
      for (int64_t j = 0; j < c; j++) {
        int64_t num = 2 * sums[j] + total, den = 2 * total, quotient = num / den;
        a[j] = (int16_t)(quotient - (num % den < 0));
      }
    }
}

/* [7] gate and up [n][2f] to a int16[n][f] and 2^e of each row. act: scratch of f int64. */
void exact_activate(const double *both, int64_t n, int64_t f, double gate_step,
                    const int64_t *sigmoid, int64_t *act, double *exponents, int16_t *a) {
  for (int64_t r = 0; r < n; r++, both += 2 * f, a += f) {
    int64_t top = 0;
    for (int64_t i = 0; i < f; i++) {
      double z = floor(both[i] * gate_step) + 32768.0;
      z = z < 0.0 ? 0.0 : z > 65535.0 ? 65535.0 : z;
      act[i] = sigmoid[(int64_t)z] * (int64_t)both[i] * (int64_t)both[f + i];
      int64_t size = act[i] < 0 ? -act[i] : act[i];
      top = size > top ? size : top;
    }
    int bits = top ? 64 - __builtin_clzll((uint64_t)top) : 0;
    int e = bits > 15 ? bits - 15 : 0;
    int64_t half = ((int64_t)1 << e) >> 1;
    if (((top + half) >> e) > 32639) {
      e++;
      half = (int64_t)1 << (e - 1);
    }
    exponents[r] = ldexp(1.0, e);
    for (int64_t i = 0; i < f; i++) a[i] = (int16_t)((act[i] + half) >> e);
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
    exact_norm(x, n, m->hidden, layer->mlp_gains, m->norm_shift, m->epsilon, t->a);
    product(&layer->gate_up, t->a, n, 0, 0, t->y);
    exact_activate(t->y, n, m->inner, layer->gate_step, m->sigmoid_table, t->act, t->exponents,
                   t->inner);
    product(&layer->down, t->inner, n, t->exponents, 1, x);
  }
}
