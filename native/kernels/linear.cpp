#include "kernels/linear.h"

#include <algorithm>

#include "core/context.h"
#include "gemm.h"  // of the variant
#include "kernels/gemv_codes.h"
#include "kernels/node_panels.h"

namespace sf {
namespace {

template <int Rows, int Panels, int XLimbs, class Source>
void rows_times_panels(const Problem& p, const Source* sources, int64_t row, int64_t panel) {
  const int64_t row_stride = XLimbs * p.x.stride, groups = p.groups();
  Sums<2> sums[Panels * Rows];
  if constexpr (XLimbs == 2) {
    dot_rows<Rows, Panels, 2>(sources, 0, p.lines(), p.row(row), row_stride, p.x.stride, sums);
    for (int i = 0; i < Panels; ++i) {
      const PanelEnd end(p, panel + i);
      for (int r = 0; r < Rows; ++r) finish_two_limbs<1>(end, row + r, sums[i * Rows + r]);
    }
  } else {
    Partial partial[Panels * Rows] = {};
    for (int64_t g = 0; g < groups; ++g) {
      dot_rows<Rows, Panels, 1>(sources, p.group_first(g), p.group_last(g), p.row(row), row_stride, 0, sums);
      for (int i = 0; i < Panels * Rows; ++i)
        add_group<Source::kLimbs>(sums[i], p.x.scales[(row + i % Rows) * groups + g], partial[i]);
    }
    for (int i = 0; i < Panels; ++i) {
      const PanelEnd end(p, panel + i);
      for (int r = 0; r < Rows; ++r) finish_one_limb(end, row + r, partial[i * Rows + r]);
    }
  }
}

template <int Rows, int Panels, class Source>
void some_rows(const Problem& p, const Source* sources, int64_t row, int64_t panel) {
  if constexpr (Source::kLimbs == 1)
    if (p.x.limbs == 2) return rows_times_panels<Rows, Panels, 2>(p, sources, row, panel);
  rows_times_panels<Rows, Panels, 1>(p, sources, row, panel);  // two limbs by two go by codes
}

// A panel's weights expanded once serve all rows, as many at a time as registers hold.
template <class Source>
void all_rows(const Problem& p, const Source& source, int64_t panel) {
  int64_t row = 0;
  for (; row + kRowBlock <= p.rows; row += kRowBlock) some_rows<kRowBlock, 1>(p, &source, row, panel);
  if constexpr (kRowBlock > 1)
    for (; row < p.rows; ++row) some_rows<1, 1>(p, &source, row, panel);
}

// The weights pass by once; with one row or two, in several panels at a time.
template <int Rows, class Maker>
void few_rows(const Problem& p, const Maker& source, const Share& share) {
  constexpr int kPanels = Rows <= 2 ? kPanelBlock : 1;
  int64_t panel = share.first_panel;
  for (; panel + kPanels <= share.last_panel; panel += kPanels)
    some_rows<Rows, kPanels>(p, make_each<kPanels>(source, panel).data(), 0, panel);
  for (; panel < share.last_panel; ++panel) {
    const auto one = source(panel);
    some_rows<Rows, 1>(p, &one, 0, panel);
  }
}

// Bytes a panel takes once expanded, or 0 where it is multiplied as it is read.
int64_t expanded_bytes(const Problem& p) {
  const bool plain = p.w->bits == 8 && p.w->limbs == 1;
  return plain || p.rows <= kFewRows ? 0 : p.w->num_tiles() * 2 * kPlaneBytes * p.w->limbs;
}

template <class Maker>
void expanded_rows(const Problem& p, const Maker& source, const Share& share, uint8_t* planes) {
  for (int64_t panel = share.first_panel; panel < share.last_panel; ++panel) {
    const auto one = source(panel);
    using Source = std::decay_t<decltype(one)>;
    if (!planes) {
      all_rows(p, one, panel);
    } else {
      write_planes(one, p.lines(), planes);
      all_rows(p, PlainSource<Source::kLimbs>{planes}, panel);
    }
  }
}

void run_by_rows(const Problem& p, const Share& share, uint8_t* planes) {
  with_source(*p.w, [&](const auto& source) {
    if (p.rows == 1) return few_rows<1>(p, source, share);
    if (p.rows == 2) return few_rows<2>(p, source, share);
    if constexpr (kFewRows == 4) {
      if (p.rows == 3) return few_rows<3>(p, source, share);
      if (p.rows == 4) return few_rows<4>(p, source, share);
    }
    expanded_rows(p, source, share, planes);
  });
}

// ---- which way, and how the work is cut ----

// Tasks go block of rows by block of rows, so that a thread finds a block's rows in its cache again.
struct Cut {
  int64_t first, last;      // panels
  int64_t panels, columns;  // panels of a task, tasks across the panels
  int64_t rows, blocks;     // rows of a task, tasks down the rows

  int64_t tasks() const { return columns * blocks; }
};

int64_t rows_of_task(const Problem& p) { return gemm::applies(p) ? gemm::block_rows(p) : p.rows; }

// Whether the weights pass by once, on vectors.
bool is_few_rows(const Problem& p) {
  return !gemm::applies(p) && p.rows <= (by_codes(p) ? few_code_rows(p) : kFewRows);
}

// Panels first to last. Many tasks per thread level out noise; wide ones fetch the rows from afar less often, where
// there are many rows.
Cut cut(const Problem& p, int64_t first, int64_t last, int threads) {
  const int64_t panels = last - first, wide = std::clamp<int64_t>(panels / (threads * 4), 1, 8);
  const int64_t each = is_few_rows(p) ? kPanelBlock : wide;
  const int64_t rows = rows_of_task(p);
  return {first, last, each, divide_up(panels, each), rows, divide_up(p.rows, rows)};
}

int64_t scratch_bytes(const Problem& p, const Cut& c) {
  if (gemm::applies(p)) return gemm::scratch_bytes(p, c.panels);
  if (p.prepared) return 0;
  return by_codes(p) ? prepared_bytes(p) : expanded_bytes(p);
}

void run_task(const Problem& p, const Cut& c, int64_t task, uint8_t* scratch) {
  const int64_t panel = c.first + task % c.columns * c.panels, row = task / c.columns * c.rows;
  const Share share{panel, std::min(panel + c.panels, c.last), row, std::min(row + c.rows, p.rows)};
  if (gemm::applies(p)) gemm::run(p, share, scratch);
  else if (by_codes(p)) run_by_codes(p, share, reinterpret_cast<int32_t*>(scratch));
  else run_by_rows(p, share, expanded_bytes(p) ? scratch : nullptr);
  settle();
}

// ---- what each task would prepare of its rows, for all of them ----

int64_t prepared_numbers(const Problem& p) {
  if (gemm::applies(p)) return p.rows * gemm::row_prepared(p);
  return is_few_rows(p) && by_codes(p) ? prepared_bytes(p) / static_cast<int64_t>(sizeof(int32_t)) : 0;
}

void prepare_row(const Problem& p, int64_t row, int32_t* prepared) {
  gemm::applies(p) ? gemm::prepare(p, row, prepared) : prepare_codes(p, row, prepared);
}

// Few rows are prepared by this thread.
void prepare(Problem& p, Context& context) {
  const int64_t count = prepared_numbers(p);
  if (!count) return;
  auto* prepared = context.shared.get<int32_t>(count);
  const auto run = [&](int64_t row, int) { prepare_row(p, row, prepared); };
  if (gemm::applies(p)) context.pool.run(p.rows, run);
  else
    for (int64_t row = 0; row < p.rows; ++row) run(row, 0);
  p.prepared = prepared;
}

void prepare(std::vector<Problem>& problems, Context& context) {
  std::vector<int64_t> first{0};  // where each problem's numbers begin
  bool are_few = true;
  for (const Problem& p : problems) {
    first.push_back(first.back() + prepared_numbers(p));
    are_few = are_few && !gemm::applies(p);
  }
  if (!first.back()) return;
  auto* prepared = context.shared.get<int32_t>(first.back());
  const auto run = [&](int64_t i, int) {
    Problem& p = problems[i];
    if (first[i] == first[i + 1]) return;
    for (int64_t row = 0; row < p.rows; ++row) prepare_row(p, row, prepared + first[i]);
    p.prepared = prepared + first[i];
  };
  if (are_few)
    for (size_t i = 0; i < problems.size(); ++i) run(static_cast<int64_t>(i), 0);
  else context.pool.run(static_cast<int64_t>(problems.size()), run);
}

Error check_problem(const Problem& p, int64_t cols) {
  SF_REQUIRE(p.w, kBadPacked);
  SF_REQUIRE(p.w->k == cols, kBadShape);
  SF_REQUIRE(p.y && p.y_stride >= p.w->n, kBadShape);
  SF_REQUIRE(!p.residual || p.residual_stride >= p.w->n, kBadShape);
  return check_activations(p.x, cols);
}

// ---- several problems, and several nodes ----

struct Piece {
  const Problem* problem;
  Cut cut;
};

// All problems in one run. Each node's tasks come together and are those of its panels in every problem, however many
// rows there are: the panels that node_panels tells.
void run_all(const std::vector<Problem>& problems, Context& context) {
  Pool& pool = context.pool;
  std::vector<Piece> pieces;
  std::vector<int64_t> first_task{0}, end_of_node;
  int64_t bytes = 0;
  for (size_t node = 0; node < pool.num_nodes(); ++node) {
    for (const Problem& p : problems) {
      const auto [first, last] = node_panels(pool, node, p.w->num_panels());
      if (first == last) continue;
      pieces.push_back({&p, cut(p, first, last, pool.threads_of(node))});
      first_task.push_back(first_task.back() + pieces.back().cut.tasks());
      bytes = std::max(bytes, scratch_bytes(p, pieces.back().cut));
    }
    end_of_node.push_back(first_task.back());
  }
  if (bytes) reserve_scratch<uint8_t>(context, bytes);
  const auto run = [&](int64_t task, int thread) {
    const auto at = std::upper_bound(first_task.begin(), first_task.end(), task) - first_task.begin() - 1;
    run_task(*pieces[at].problem, pieces[at].cut, task - first_task[at],
             bytes ? context.scratch[thread].get<uint8_t>(bytes) : nullptr);
  };
  pool.num_nodes() == 1 ? pool.run_in_stretches(first_task.back(), run) : pool.run_by_node(end_of_node, run);
}

}  // namespace

Error op_linear(Context& context, sf_linear_args& args) {
  SF_REQUIRE(args.rows >= 0, kBadShape);
  Problem problem{args.x,        open_packed(args.weights), args.bias, args.residual, args.y, args.rows,
                  args.y_stride, args.residual_stride};
  if (const Error error = check_problem(problem, args.cols)) return error;
  if (args.rows == 0) return kOk;
  prepare(problem, context);
  if (context.pool.num_nodes() > 1) {
    run_all({problem}, context);
    return kOk;
  }
  const Cut c = cut(problem, 0, problem.w->num_panels(), context.pool.size());
  const int64_t bytes = scratch_bytes(problem, c);
  if (bytes) reserve_scratch<uint8_t>(context, bytes);
  const auto run = [&](int64_t task, int thread) {
    run_task(problem, c, task, bytes ? context.scratch[thread].get<uint8_t>(bytes) : nullptr);
  };
  c.blocks == 1 ? context.pool.run_in_stretches(c.tasks(), run) : context.pool.run(c.tasks(), run);
  return kOk;
}

Error op_linear_experts(Context& context, sf_linear_experts_args& args) {
  SF_REQUIRE(args.weights && args.starts, kNullPointer);
  SF_REQUIRE(args.experts > 0, kBadShape);
  std::vector<Problem> problems;
  for (int64_t e = 0; e < args.experts; ++e) {
    const int64_t start = args.starts[e], rows = args.starts[e + 1] - start;
    SF_REQUIRE(start >= 0 && rows >= 0, kOutOfRange);
    if (rows == 0) continue;
    sf_activations x = args.x;
    x.values += start * x.limbs * x.stride;
    x.scales += start * num_groups(args.cols, x.group);
    const Problem problem{x,
                          open_packed(args.weights[e]),
                          args.biases ? args.biases[e] : nullptr,
                          nullptr,
                          args.y + start * args.y_stride,
                          rows,
                          args.y_stride,
                          0};
    if (const Error error = check_problem(problem, args.cols)) return error;
    problems.push_back(problem);
  }
  prepare(problems, context);
  run_all(problems, context);
  return kOk;
}

}  // namespace sf
