/* The C ABI of one variant's kernel library.
 *
 * Every operation takes one plain struct of pointers, sizes and options, so that a recorded step is an array of
 * (operation, struct) that sf_run replays in one call. Nothing here owns memory but the context and sf_alloc.
 * Strides count elements. Return values: 0, or an error code that sf_error explains. */
#ifndef SUREFOOT_H
#define SUREFOOT_H
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#define SF_API __attribute__((visibility("default")))

/* ---- values shared by several operations ---- */

/* Quantised rows: int8 [rows][limbs][stride], zero beyond cols. The stride is a multiple of 64.
 * limbs 2: x = scale[row] * (128 * hi + lo).   limbs 1: x = scale[row][k / group] * value. */
typedef struct {
  int8_t* values;
  float* scales;
  int64_t stride;
  int32_t limbs;
  int32_t group; /* columns per scale; 0: one scale per row */
} sf_activations;

/* ---- quantise ---- */
typedef struct {
  const float* x;
  int64_t rows, cols, x_stride;
  sf_activations out;
} sf_quantise_args;

/* ---- packed weights and the integer matmul: see kernels/pack.h for the layout ---- */
typedef struct {
  /* Rows first to first + rows of a matrix of n, into its panels. */
  const int8_t* codes;       /* [rows][k] int8, or values 0..15 when bits is 4 */
  const int16_t* scales;     /* [rows][k / group] integer group scales, or null */
  const int16_t* offsets;    /* [rows][k / group] integer group offsets, or null */
  const float* row_scales;   /* [rows] */
  const int8_t* table;       /* 16 entries when bits is 4, else null */
  int64_t n, k, first, rows; /* first is a multiple of 32; so is rows but at the end */
  int32_t bits, limbs, group;
  void* packed; /* sf_packed_bytes() bytes for all n rows, zeroed before the first call, 64-byte aligned */
  int64_t packed_bytes;
} sf_pack_args;

/* Codes as files hold them: blocks of columns, each a record of bytes with one or two bit fields per code.
 * A field is a stretch of bytes in runs; a run of `run` bytes holds 8 / width runs of codes, the lowest bits first. */
typedef struct {
  int32_t offset; /* in the block's record */
  int32_t width;  /* bits: 1, 2, 4 or 8; 0: no field */
  int32_t run;
  int32_t unused;
} sf_bit_field;

/* Rows first to first + rows of a matrix of n, into its panels: see kernels/pack_blocks.cpp. */
typedef struct {
  const uint8_t* blocks; /* [rows][row_stride] bytes */
  const float* scales;   /* [rows][k / group], or null: scales are products */
  const float* offsets;  /* [rows][k / group] or null */
  /* Scales and offsets as products of a half-precision number for 256 columns and an integer for each group. */
  const uint16_t* super_scales;  /* [rows][k / 256] or null */
  const uint16_t* super_offsets; /* [rows][k / 256] or null */
  const int8_t* group_scales;    /* [rows][k / group] */
  const int8_t* group_offsets;   /* [rows][k / group] */
  const int8_t* table;           /* 16 entries: 4-bit codes; null: 8-bit codes */
  void* packed; /* sf_packed_bytes() bytes for all n rows, zeroed before the first call, 64-byte aligned */
  int64_t packed_bytes;
  int64_t n, k, first, rows, row_stride; /* first is a multiple of 32; so is rows but at the end */
  sf_bit_field low, high;
  int32_t block, block_bytes, group;
  int32_t add, stretch, centre;
  int32_t width, scale_bits; /* of codes and scales in memory: see kernels/pack.h */
  int32_t power;             /* products are multiplied by two to this power: -16 to 16 */
  int32_t unused;
  float span_low, span_high; /* least and largest value of a code, before the stretch */
} sf_pack_blocks_args;

typedef struct {
  sf_activations x;
  const void* weights;   /* packed */
  const float* bias;     /* [n] or null */
  const float* residual; /* [rows][residual_stride] added last, or null */
  float* y;              /* [rows][y_stride] */
  int64_t rows, cols, y_stride, residual_stride;
} sf_linear_args;

/* Rows sorted by expert: expert e owns rows starts[e] to starts[e + 1] of x and y. */
typedef struct {
  sf_activations x;
  const void* const* weights; /* [experts] packed, all of one shape and format */
  const float* const* biases; /* [experts] or null */
  const int64_t* starts;      /* [experts + 1] */
  float* y;
  int64_t experts, cols, y_stride;
} sf_linear_experts_args;

/* y[r][n] = sum_k x[r][k] w[n][k] + bias[n] in float: reference and evaluation. */
typedef struct {
  const float* x;
  const void* w;
  const float* bias;
  float* y;
  int64_t rows, n, k, x_stride, w_stride, y_stride;
  int32_t dtype; /* 0: float32, 1: bfloat16 */
  int32_t unused;
} sf_float_linear_args;

/* ---- rows of a table ---- */
typedef struct {
  const int64_t* ids; /* [rows] */
  const void* table;  /* float32 or bfloat16 [vocab][cols], or packed weights [vocab][cols] */
  float* y;
  int64_t rows, vocab, cols, y_stride;
  int32_t dtype; /* 0: float32, 1: bfloat16, 2: packed */
  float scale;   /* multiplies every value */
} sf_embed_args;

/* ---- norms: h = x + residual (if any); y = norm(h) * weight + bias; any of the outputs may be absent ---- */
typedef struct {
  const float* x;
  const float* residual;
  const float* weight;      /* [cols] or null for ones */
  const float* bias;        /* [cols] or null */
  float* h;                 /* the sum, or null */
  float* y;                 /* the normed row, or null */
  sf_activations quantised; /* values null: not wanted */
  int64_t rows, cols, x_stride, residual_stride, h_stride, y_stride;
  float eps;
  float weight_offset; /* 1 for Gemma: y = norm * (offset + weight) */
  int32_t kind;        /* 0: RMSNorm, 1: LayerNorm */
  int32_t heads;       /* row r starts at r / heads * stride + r % heads * cols; 1 for plain rows */
} sf_norm_args;

/* ---- rotary embedding: the table [rows][pairs] of cos and of sin, then the rotation in place ---- */
typedef struct {
  const int64_t* positions; /* [rows] */
  const float* inv_freq;    /* [pairs] */
  float* cos;
  float* sin;
  const float* row_scales; /* [rows]: multiply scale; null: all 1 */
  int64_t rows, pairs;
  float scale; /* multiplies cos and sin (yarn's attention factor) */
  int32_t unused;
} sf_rope_table_args;

typedef struct {
  float* x; /* [rows][heads][head_dim], rows x_stride apart */
  const float* cos;
  const float* sin;
  int64_t rows, heads, head_dim, pairs, x_stride;
  int32_t pairing; /* 0: lane i with i + pairs (NeoX), 1: lane 2i with 2i + 1 (interleaved) */
  int32_t unused;
} sf_rope_args;

/* ---- activations: y = act(gate) * up, or act(gate) when up is null ---- */
typedef struct {
  const float* gate;
  const float* up;
  float* y;                 /* or null */
  sf_activations quantised; /* values null: not wanted */
  int64_t rows, cols, gate_stride, up_stride, y_stride;
  int32_t kind;       /* 0: silu, 1: gelu (erf), 2: gelu (tanh), 3: the clamped swiglu of gpt-oss, 4: sigmoid,
                         5: relu squared */
  float limit, alpha; /* kind 3 */
  int32_t unused;
} sf_glu_args;

/* y = cap * tanh(x / cap) */
typedef struct {
  const float* x;
  float* y;
  int64_t count;
  float cap;
  int32_t unused;
} sf_softcap_args;

/* y = (a + b) * scale */
typedef struct {
  const float* a;
  const float* b; /* or null */
  float* y;
  int64_t count;
  float scale;
  int32_t unused;
} sf_add_args;

/* One elementary function over an array, for its tests: 0 exp, 1 log, 2 tanh, 3 erf, 4 sin, 5 cos, 6 rsqrt. */
typedef struct {
  const float* x;
  float* y;
  int64_t count;
  int32_t function;
  int32_t unused;
} sf_elementary_args;

/* ---- KV cache: see kernels/kv.h for a block's layout ---- */
typedef struct {
  uint8_t* data; /* [blocks][kv_heads][record bytes] of one layer */
  int64_t num_blocks, block_size, kv_heads, head_dim, value_dim;
  int32_t form; /* 0: keys two limbs, values int8; 1: both int8; 2: both two limbs; 3: bfloat16 */
  int32_t unused;
} sf_kv_cache;

typedef struct {
  sf_kv_cache cache;
  const float* keys;    /* [rows][kv_heads][head_dim] */
  const float* values;  /* [rows][kv_heads][value_dim] */
  const int64_t* slots; /* [rows]: block * block_size + place; negative: not written */
  int64_t rows, keys_stride, values_stride;
} sf_kv_write_args;

typedef struct {
  sf_kv_cache cache;
  const int64_t* pairs; /* [count][2]: from block, to block */
  int64_t count;
} sf_kv_copy_args;

/* One call serves any mix of chunks. Chunk c owns query rows starts[c] to starts[c + 1]; its last row stands at
 * absolute position lengths[c] - 1 and the row before it at lengths[c] - 2, and so on. */
typedef struct {
  sf_kv_cache cache;
  const float* q;             /* [rows][heads][head_dim] */
  float* y;                   /* [rows][heads][value_dim] */
  const int64_t* starts;      /* [chunks + 1] */
  const int64_t* lengths;     /* [chunks]: tokens in the KV cache, this chunk's own included */
  const int64_t* block_table; /* [chunks][table_stride] */
  const float* sinks;         /* [heads] logits that take part in the softmax, or null */
  const float* slopes;        /* [heads]: a logit falls by this for each token between; not with softcap; or null */
  int64_t chunks, heads, q_stride, y_stride, table_stride;
  int64_t window; /* a query sees itself and window - 1 before it; 0: all before; negative: -window - 1 after it too */
  float scale;    /* of the scores */
  float softcap;  /* 0: none */
  int32_t fixed;  /* 1: windows stand side by side from position 0 on, and a query sees its own up to itself */
  int32_t unused;
} sf_attention_args;

/* ---- states: what a layer keeps of a request instead of keys and values, in slots of one size ---- */

/* Chunk c owns rows starts[c] to starts[c + 1]. It goes on from the state in slot loads[c] (negative: zeros), and the
 * state after row r is written to slot saves[r] (negative: not written). No slot is both read and written in a call. */
typedef struct {
  const int64_t* starts; /* [chunks + 1] */
  const int64_t* loads;  /* [chunks] */
  const int64_t* saves;  /* [rows] */
  int64_t rows, chunks, slots;
} sf_state_rows;

/* A causal convolution over a request's rows, column by column: see kernels/short_conv.cpp. */
typedef struct {
  sf_state_rows rows;
  const float* x;        /* [rows][x_stride] */
  const float* gate_in;  /* like x: multiplies it before the convolution; or null */
  const float* gate_out; /* like x: multiplies the result; or null */
  const float* weight;   /* [taps][cols]; the last tap is that of the row itself */
  const float* bias;     /* [cols] or null */
  float* state;          /* [slots][taps - 1][cols]: the latest inputs, the oldest first */
  float* y;              /* [rows][y_stride]; not x */
  int64_t cols, taps, x_stride, y_stride;
  int32_t silu; /* 1: silu of the sum, before gate_out */
  int32_t unused;
} sf_short_conv_args;

/* The gates of the delta rule: decay = exp(rate * softplus(a + bias)), beta = 1 / (1 + exp(-b)). */
typedef struct {
  const float* a;    /* [rows][a_stride] */
  const float* b;    /* [rows][b_stride] */
  const float* rate; /* [decays], not above 0 */
  const float* bias; /* [decays] */
  float* decay;      /* [rows][decays] */
  float* beta;       /* [rows][betas] */
  int64_t rows, decays, betas, a_stride, b_stride;
} sf_delta_gates_args;

/* The gated delta rule: a matrix a head, changed by one row after the other; see kernels/delta_rule.cpp. */
typedef struct {
  sf_state_rows rows;
  const float* q;     /* [rows][key_heads][key_dim], rows qkv_stride apart */
  const float* k;     /* like q */
  const float* v;     /* [rows][heads][value_dim], rows qkv_stride apart */
  const float* decay; /* [rows][heads], or [rows][heads][key_dim] */
  const float* beta;  /* [rows][heads] */
  float* state;       /* [slots][heads][key_dim][value_dim] */
  float* y;           /* [rows][heads][value_dim] */
  int64_t key_heads, heads, key_dim, value_dim, qkv_stride, y_stride;
  int32_t tiled;   /* head h reads key head: 0: h / (heads / key_heads), 1: h % key_heads */
  int32_t by_lane; /* 1: each lane of a head's keys fades by a decay of its own */
} sf_delta_rule_args;

/* The gates of Mamba-2's scan: dt = softplus(x + bias), decay = exp(rate * dt). */
typedef struct {
  const float* x;    /* [rows][x_stride] */
  const float* rate; /* [heads], not above 0 */
  const float* bias; /* [heads] */
  float* decay;      /* [rows][heads] */
  float* dt;         /* [rows][heads] */
  int64_t rows, heads, x_stride;
} sf_ssd_gates_args;

/* Mamba-2's scan: a matrix a head, changed by one row after the other; see kernels/ssd_scan.cpp. */
typedef struct {
  sf_state_rows rows;
  const float* x;     /* [rows][heads][head_dim], rows x_stride apart */
  const float* b;     /* [rows][groups][state_dim], rows x_stride apart: what x is written with */
  const float* c;     /* like b: what the state is read with */
  const float* decay; /* [rows][heads] */
  const float* dt;    /* [rows][heads] */
  const float* skip;  /* [heads]: how much of x goes to y directly */
  float* state;       /* [slots][heads][state_dim][head_dim] */
  float* y;           /* [rows][heads][head_dim], rows y_stride apart */
  int64_t groups, heads, state_dim, head_dim, x_stride, y_stride;
} sf_ssd_scan_args;

/* RMSNorm of silu(gate) * x, each group of columns by itself: see kernels/gated_norm.cpp. */
typedef struct {
  const float* x;           /* [rows][x_stride] */
  const float* gate;        /* [rows][gate_stride] */
  const float* weight;      /* [cols] */
  float* y;                 /* [rows][y_stride], or null */
  sf_activations quantised; /* values null: not wanted */
  int64_t rows, cols, groups, x_stride, gate_stride, y_stride;
  float eps;
  int32_t unused;
} sf_gated_norm_args;

/* How the values of a row are spread: see kernels/row_spread.cpp. x keeps what is above its mean by more than `spreads`
 * standard deviations, less that bound; the rest is 0. */
typedef struct {
  float* x; /* [rows][x_stride], in place */
  int64_t rows, cols, x_stride;
  float spreads;
  int32_t unused;
} sf_sparsify_args;

/* Rows of y get the root mean square of x's rows. */
typedef struct {
  const float* x; /* [rows][x_stride] */
  float* y;       /* [rows][y_stride], in place */
  int64_t rows, cols, x_stride, y_stride;
  float least; /* y's mean square counts as this, where it is less */
  int32_t unused;
} sf_match_rms_args;

/* ---- mixture of experts: the k largest of each row, ties to the lower id, and their weights. With groups (of
   neighbouring experts, all of one size) only the experts of a row's `kept_groups` best groups are chosen from ---- */
typedef struct {
  const float* logits;        /* [rows][experts] */
  const float* bias;          /* [experts] added to the scores for the choice only, or null */
  const float* expert_scales; /* [experts] multiply the weights last; null: all 1 */
  int64_t* ids;               /* [rows][k] */
  float* weights;             /* [rows][k] */
  int64_t rows, experts, k;
  int64_t groups, kept_groups; /* 1, 1: no groups */
  int32_t scoring;             /* 0: softmax over all, 1: softmax over the chosen, 2: sigmoid */
  int32_t normalise;           /* divide by the chosen weights' sum */
  float scale;
  int32_t group_best; /* a group's score is the sum of its `group_best` (1 or 2) best experts' */
} sf_route_args;

/* The (row, slot) pairs of ids sorted by expert, stably: expert e owns sorted rows starts[e] to starts[e + 1]. */
typedef struct {
  const int64_t* ids; /* [rows][k] */
  int64_t* sources;   /* [rows * k]: the row that sorted row i comes from */
  int64_t* starts;    /* [experts + 1] */
  int64_t* places;    /* [rows][k]: where the pair went */
  int64_t rows, k, experts;
} sf_group_experts_args;

/* Expert outputs back to rows: y[r] = sum over j of weights[r][j] * x[places[r][j]], added in ascending j. */
typedef struct {
  const float* x;        /* [x_rows][x_stride] */
  const int64_t* places; /* [rows][k]: rows of x */
  const float* weights;  /* [rows][k] */
  const float* residual; /* [rows][residual_stride] added last, or null */
  float* y;              /* [rows][y_stride] */
  int64_t rows, cols, k, x_rows, x_stride, residual_stride, y_stride;
} sf_combine_args;

/* ---- sampling: one token per row. A row without a finite largest logit gets token -1 ---- */
typedef struct {
  const float* logits;      /* [rows][vocab] */
  const float* temperature; /* [rows]; 0: greedy */
  const float* top_p;       /* [rows]; 1: off */
  const float* min_p;       /* [rows]; 0: off */
  const int64_t* top_k;     /* [rows]; 0: off */
  const uint64_t* seeds;    /* [rows] */
  const int64_t* positions; /* [rows] */
  int64_t* tokens;          /* out [rows] */
  float* logprobs;          /* out [rows]: of the token, before temperature and filters; or null */
  int64_t rows, vocab, logits_stride;
} sf_sample_args;

/* The count largest logits of each row (ties to the lower id) and their log-probabilities. */
typedef struct {
  const float* logits;
  int64_t* ids;    /* [rows][count] */
  float* logprobs; /* [rows][count] */
  int64_t rows, vocab, logits_stride, count;
} sf_top_logprobs_args;

/* ---- measurements of the machine, on the context's threads ---- */
typedef struct {
  const void* data; /* read once per repeat, split over the threads */
  int64_t bytes;
  int64_t repeats;
  double seconds; /* out */
} sf_read_bandwidth_args;

typedef struct {
  int64_t iterations; /* of a register-only loop on every thread */
  double operations;  /* out: multiplications and additions, each counted */
  double seconds;     /* out */
  int32_t kind;       /* 0: int8 dot products, the widest the variant has; 1: float32 fma; 2: bfloat16 matrix */
  int32_t unused;
} sf_peak_args;

/* ---- the library ---- */
typedef struct sf_context sf_context;
typedef struct {
  int32_t op;
  int32_t unused;
  void* args;
} sf_call;

SF_API const char* sf_variant(void);
/* Bit set of what the processor and the operating system allow: see core/features.cpp. */
SF_API uint64_t sf_features(void);
SF_API int32_t sf_op(const char* name);   /* -1: no such operation */
SF_API int64_t sf_args_bytes(int32_t op); /* size of its struct, to check the caller's picture of it */
SF_API const char* sf_error(int32_t code);
/* node_of_thread: the NUMA node of each thread, from 0 and below num_threads; null: one node. The first is the
   caller's. Null is returned without memory, or if AMX was refused. */
SF_API sf_context* sf_open(int32_t num_threads, const int32_t* node_of_thread);
SF_API void sf_close(sf_context*);
SF_API int32_t sf_run(sf_context*, const sf_call* calls, int64_t count, int64_t* failed);
/* From any thread. While set, a run ends before its next operation; single operations are never stopped. */
SF_API void sf_stop(sf_context*, int32_t stop);
/* At most so many of the context's threads compute, from the next run on; not beside a run. Results do not change. */
SF_API void sf_use_threads(sf_context*, int32_t num_threads);
/* The threads of a node, but for the caller's, run on these processors only. Not beside a run. 0, or errno. */
SF_API int32_t sf_bind(sf_context*, int32_t node, const int32_t* cpus, int64_t num_cpus);
/* In a packed matrix of n outputs and so many bytes, the end of the panels that a node's threads multiply: those of the
   next node begin there. Negative: no such node or matrix. */
SF_API int64_t sf_node_end(sf_context*, int32_t node, int64_t n, int64_t bytes);
SF_API void* sf_alloc(int64_t bytes); /* 2 MiB aligned, huge pages asked for */
/* Pages of these bytes that nobody has touched yet will come from these NUMA nodes (as the kernel numbers them), in
   turn where there are several; from another when they are full. A page that is partly outside counts by its larger
   part. 0, or errno. */
SF_API int32_t sf_prefer_nodes(void*, int64_t bytes, const int32_t* nodes, int64_t num_nodes);
SF_API void sf_free(void*, int64_t bytes);
SF_API int64_t sf_packed_bytes(int64_t n, int64_t k, int32_t bits, int32_t limbs, int32_t group, int32_t with_offsets,
                               int32_t width, int32_t scale_bits);
SF_API int64_t sf_kv_record_bytes(const sf_kv_cache*); /* of one head of one block; negative: not allowed */

#ifdef __cplusplus
}
#endif
#endif
