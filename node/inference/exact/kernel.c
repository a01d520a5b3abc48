/* The forward pass of docs/exact.md for a few rows, one weight read per pass. Optional: `native.py`
 * compiles it where a C compiler is, and the engine takes it only after it gave the same bits as
 * the torch path. Doubles hold integers below 2^53, as there; numbers in brackets are steps. */
#include <math.h>
#include <stdint.h>

#define MAX_INPUTS 65536

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

/* Sums over `in` inputs of four rows with one row of weights: each weight is loaded once. */
static void dot4(const int16_t *a, int64_t step, const int16_t *w, int64_t in, int64_t piece,
                 int64_t *acc) {
  const int16_t *b = a + step, *c = b + step, *d = c + step;
  acc[0] = acc[1] = acc[2] = acc[3] = 0;
  for (int64_t at = 0; at < in; at += piece) {
    int64_t end = at + piece < in ? at + piece : in;
    int32_t p = 0, q = 0, r = 0, s = 0;
    for (int64_t i = at; i < end; i++) {
      p += a[i] * w[i];
      q += b[i] * w[i];
      r += c[i] * w[i];
      s += d[i] * w[i];
    }
    acc[0] += p, acc[1] += q, acc[2] += r, acc[3] += s;
  }
}

static int64_t dot(const int16_t *a, const int16_t *w, int64_t in, int64_t piece) {
  int64_t acc = 0;
  for (int64_t at = 0; at < in; at += piece) {
    int64_t end = at + piece < in ? at + piece : in;
    int32_t part = 0;
    for (int64_t i = at; i < end; i++) part += a[i] * w[i];
    acc += part;
  }
  return acc;
}

/* rshift(acc * m, s) + b of n <= 64 rows: y[n][out]. scale = m * 2^-s, half = b + 1/2; `exponents`
 * 2^e of each row or NULL. With `add` y is the residual stream and is added to and clamped. A sum of
 * `piece` inputs fits int32: all of them where the row's weights allow, else 512. */
void exact_product(const int16_t *a, int64_t n, int64_t in, const int8_t *w, int64_t out,
                   int64_t piece, const double *scale, const double *half, const double *exponents, int add,
                   double *y) {
  int16_t wide[MAX_INPUTS];
  int64_t acc[64];
  for (int64_t j = 0; j < out; j++, w += in) {
    for (int64_t i = 0; i < in; i++) wide[i] = w[i];
    int64_t r = 0;
    for (; r + 4 <= n; r += 4) dot4(a + r * in, in, wide, in, piece, acc + r);
    for (; r < n; r++) acc[r] = dot(a + r * in, wide, in, piece);
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
void exact_rotate(const double *y, int64_t n, int64_t stride, int64_t heads, int64_t c,
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

/* [5] of one span. q int16[n][heads][c]; `runs` of neighbouring tokens: keys[], values[] point to
 * head 0, a head is head_stride[] values further; row i sees past + i + 1 tokens. scores and sums:
 * scratch of as many int64 as there are tokens, and of c. a int16[n][heads * c]. */
void exact_attend(const int16_t *q, int64_t n, int64_t heads, int64_t kv_heads, int64_t c,
                  int64_t past, int64_t runs, const int16_t *const *keys,
                  const int16_t *const *values, const int64_t *head_stride, const int64_t *tokens,
                  const double *score_scale, const int64_t *table, int64_t limit, int64_t *scores,
                  int64_t *sums, int16_t *a) {
  for (int64_t r = 0; r < n; r++)
    for (int64_t h = 0; h < heads; h++, q += c, a += c) {
      int64_t kv = h / (heads / kv_heads), seen = past + r + 1, at = 0, top = INT64_MIN, total = 0;
      for (int64_t run = 0; run < runs && at < seen; run++) {
        const int16_t *k = keys[run] + kv * head_stride[run];
        for (int64_t i = 0; i < tokens[run] && at < seen; i++, at++, k += c) {
          int64_t s = 0;
          for (int64_t j = 0; j < c; j++) s += (int32_t)q[j] * (int32_t)k[j];
          scores[at] = s;
          top = s > top ? s : top;
        }
      }
      for (int64_t j = 0; j < c; j++) sums[j] = 0;
      at = 0;
      for (int64_t run = 0; run < runs && at < seen; run++) {
        const int16_t *v = values[run] + kv * head_stride[run];
        for (int64_t i = 0; i < tokens[run] && at < seen; i++, at++, v += c) {
          double delta = (double)(top - scores[at]) * score_scale[h];
          if (delta >= (double)limit) continue;
          int64_t p = table[(int64_t)delta];
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
