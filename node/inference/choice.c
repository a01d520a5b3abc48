/* The coupled mode's choice, with the bits of settlement/noise.py: argmax of score + G over a
 * vocabulary, G worked out only where a bound on it lets the token win. `choice.py` says why the
 * bound holds and compares the results before it uses them. Constants come from there too. */
#include <stdint.h>

#define M0 0xD2511F53u
#define M1 0xCD9E8D57u
#define W0 0x9E3779B9u
#define W1 0xBB67AE85u
#define PART 512
#define BINS 8 /* of the bound, within a power of two */

typedef struct {
  int64_t ln2_q40, artanh[10], h[12];
  int64_t most[33 * BINS]; /* G's bound by the top bits of 2^64 - 1 - r */
} constants;

static inline void philox(uint32_t c0, const uint32_t *at, uint32_t *x) {
  uint32_t k0 = at[0], k1 = at[1], c1 = at[2], c2 = at[3], c3 = at[4];
  for (int i = 0; i < 10; i++, k0 += W0, k1 += W1) {
    uint64_t p0 = (uint64_t)c0 * M0, p1 = (uint64_t)c2 * M1;
    c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, c1 = (uint32_t)p1;
    c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1, c3 = (uint32_t)p0;
  }
  x[0] = c0, x[1] = c1, x[2] = c2, x[3] = c3;
}

static int64_t bits(int64_t x) { return x ? 64 - __builtin_clzll((uint64_t)x) : 0; }

static int64_t ln_mantissa(const constants *k, int64_t m) {
  int64_t one = (int64_t)1 << 31, s = ((m - one) << 31) / (m + one), t = (s * s) >> 31;
  int64_t acc = k->artanh[9];
  for (int i = 8; i >= 0; i--) acc = ((acc * t) >> 31) + k->artanh[i];
  return (acc * s) >> 31;
}

static int64_t gumbel(const constants *k, uint64_t r) {
  int upper = r >> 63;
  int64_t a = (int64_t)(upper ? ~r : r), length = bits(a) + 1, shift = length - 33, m;
  if (shift >= 0) m = a >> shift;
  else m = (2 * a + 1) << (32 - length);
  int64_t e = (((66 - length) * k->ln2_q40) >> 9) - ln_mantissa(k, m), g;
  if (upper) {
    int64_t w = a >> 32, acc = k->h[11];
    for (int i = 10; i >= 0; i--) acc = ((acc * w) >> 31) + k->h[i];
    g = e - ((acc * w) >> 31);
  } else {
    length = bits(e);
    m = length > 32 ? e >> (length - 32) : e << (32 - length);
    g = ((31 * k->ln2_q40) >> 9) - (ln_mantissa(k, m) + (((length - 1) * k->ln2_q40) >> 9));
  }
  return (g + 64) >> 7;
}

/* G of n values of r. */
void choice_gumbel(const constants *k, const uint64_t *r, int64_t n, int64_t *g) {
  for (int64_t i = 0; i < n; i++) g[i] = gumbel(k, r[i]);
}

static int64_t noise(const constants *k, const uint32_t *at, int64_t id) {
  uint32_t x[4];
  philox((uint32_t)(id >> 1), at, x);
  const uint32_t *pair = x + 2 * (id & 1);
  return gumbel(k, (uint64_t)pair[0] << 32 | pair[1]);
}

/* The words that hold r >> 32 of tokens `first` to `first + n`, n <= PART, `first` even; or of ids. */
static void high_words(const uint32_t *at, const int64_t *ids, int64_t first, int64_t n,
                       uint32_t *high) {
  uint32_t x[4];
  if (ids) {
    for (int64_t i = 0; i < n; i++) {
      philox((uint32_t)(ids[first + i] >> 1), at, x);
      high[i] = ids[first + i] & 1 ? x[2] : x[0];
    }
    return;
  }
  uint32_t even[PART / 2], odd[PART / 2];
  for (int64_t b = 0; b < PART / 2; b++) {
    philox((uint32_t)(first >> 1) + (uint32_t)b, at, x);
    even[b] = x[0], odd[b] = x[2];
  }
  for (int64_t b = 0; b < PART / 2; b++) high[2 * b] = even[b], high[2 * b + 1] = odd[b];
}

/* best[0], best[1]: the index of the largest scores[i] + G of id i (or ids[i], ascending) among
 * those with `cutoff` or more, the first of equals, and that sum. 1 when it was found, else 0: no
 * token reaches the cut-off, or a score lies outside +-limit. at: key, then the counter's words. */
int choice_argmax(const constants *k, const uint32_t *at, const int64_t *scores, const int64_t *ids,
                  int64_t n, int64_t cutoff, int64_t limit, int64_t *best) {
  int64_t top = INT64_MIN, bottom = INT64_MAX, start = 0;
  for (int64_t i = 0; i < n; i++) {
    top = scores[i] > top ? scores[i] : top;
    bottom = scores[i] < bottom ? scores[i] : bottom;
  }
  if (top > limit || bottom < -limit || top < cutoff) return 0;
  while (scores[start] != top) start++;
  int64_t at_best = start, most = top + noise(k, at, ids ? ids[start] : start);
  for (int64_t first = 0; first < n; first += PART) {
    uint32_t high[PART];
    int64_t count = n - first < PART ? n - first : PART;
    high_words(at, ids, first, count, high);
    for (int64_t i = 0; i < count; i++) {
      uint32_t v = ~high[i];
      int64_t score = scores[first + i], lead = v ? __builtin_clz(v) : 32;
      int64_t bin = lead > 28 ? 0 : (v >> (28 - lead)) & (BINS - 1);
      if (score + k->most[lead * BINS + bin] < most || score < cutoff) continue;
      int64_t sum = score + noise(k, at, ids ? ids[first + i] : first + i);
      if (sum > most || (sum == most && first + i < at_best)) most = sum, at_best = first + i;
    }
  }
  best[0] = at_best, best[1] = most;
  return 1;
}
