/* What every row of logits is turned into, in one or two passes over it: scores in fixed point
 * (sampling.fixed_point) and, in the exact tier, topProb (exact/weights.py). The same bits as the
 * torch expressions there; `logit_rows.py` compares before it uses them. */
#include <math.h>
#include <stdint.h>

static inline int64_t fixed(double z, double temperature, double limit) {
  double scaled = z * 0x1p40 / temperature;
  scaled = scaled == scaled ? scaled : -limit;
  scaled = scaled < -limit ? -limit : scaled > limit ? limit : scaled;
  return (int64_t)rint(scaled);
}

/* z: n rows of v, `stride` apart; scores: n rows of v. */
void scores_of_doubles(const double *z, int64_t n, int64_t v, int64_t stride, double temperature,
                       double limit, int64_t *scores) {
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < v; j++) scores[i * v + j] = fixed(z[i * stride + j], temperature, limit);
}

void scores_of_floats(const float *z, int64_t n, int64_t v, int64_t stride, double temperature,
                      double limit, int64_t *scores) {
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < v; j++) scores[i * v + j] = fixed(z[i * stride + j], temperature, limit);
}

/* topProb of n rows of v multiples of 2^-24 below 2^38 in size. table: p of delta = 0 ... last. */
void top_probabilities(const double *z, int64_t n, int64_t v, int64_t stride, const int32_t *table,
                       int64_t last, int64_t coarse, int64_t *tops) {
  for (int64_t i = 0; i < n; i++, z += stride) {
    double largest = z[0];
    for (int64_t j = 0; j < v; j++) largest = z[j] > largest ? z[j] : largest;
    int64_t top = (int64_t)(largest * 0x1p24), total = 0;
    for (int64_t j = 0; j < v; j++) {
      int64_t below = top - (int64_t)(z[j] * 0x1p24);
      below = below < 1 << 29 ? below : 1 << 29;
      int64_t delta = below * coarse >> 34;
      total += table[delta < last ? delta : last];
    }
    int64_t share = ((int64_t)1 << 35) / total;
    tops[i] = share < 65535 ? share : 65535;
  }
}
