// Many rows on vectors: how a task goes through its panels and rows.
//
// A task is some panels by a block of rows. It goes through the depth in chunks. Of a chunk each panel's weights are
// unpacked once into the form that multiplies fastest, and serve all rows of the block, several at a time in registers.
// A form (gemm_blocks.h has those of x86) is a struct with
//   Source, Waiting       where weights come from; what a row's sums with a panel are between chunks
//   kRows, kLines         rows multiplied at once; lines of a chunk
//   row_prepared, prepare int32 numbers that are prepared of each row of a group, and their writing
//   unpacked_bytes, unpack, multiply<Rows>, finish
#pragma once
#include <algorithm>

#include "kernels/gemv_codes.h"

namespace sf::gemm_blocks {

inline constexpr int64_t kBlockRows = 128;
inline constexpr int64_t kRowsBytes = 512 << 10;  // of rows that stay in L2 beside all else

// Blocks of much the same size: none is left with a row or two.
inline int64_t even_part(int64_t count, int64_t most) { return divide_up(count, divide_up(count, most)); }
inline int64_t block_rows(const Problem& p) { return even_part(p.rows, kBlockRows); }

// Rows that are multiplied at once.
struct RowGroup {
  int64_t first, rows;
};

// The group that begins with a row, of the rows that are left. No group has less than half of `most`.
inline RowGroup group_from(int64_t row, int64_t end, int64_t most) { return {row, even_part(end - row, most)}; }

// The group of a row: each block is split for itself.
inline RowGroup group_of(const Problem& p, int64_t row, int64_t most) {
  const int64_t block = row / block_rows(p) * block_rows(p), end = std::min(block + block_rows(p), p.rows);
  RowGroup group = group_from(block, end, most);
  while (row >= group.first + group.rows) group = group_from(group.first + group.rows, end, most);
  return group;
}

// A panel's part of the depth.
struct Chunk {
  int64_t first, lines;
  bool opens, closes;  // the first, the last of the depth
};

// f<Rows>() for a number of rows from Least to Most.
template <int Least, int Most, class F>
void with_rows(int64_t rows, const F& f) {
  if constexpr (Least < Most)
    if (rows < Most) return with_rows<Least, Most - 1>(rows, f);
  f.template operator()<Most>();
}

template <class Source>
Source source_of(const PackedHeader& h, int64_t panel) {
  if constexpr (std::is_same_v<Source, PlainSource<1>>) return {h.panel(panel) + h.codes};
  else return Source(h, panel);
}

template <class Block>
struct Task {
  using Source = typename Block::Source;
  const Problem& p;
  const Share& share;
  int64_t rows, lines;  // of the task, of a chunk
  uint8_t* unpacked;
  typename Block::Waiting* waiting;  // [panel][row]
  const int32_t* prepared;           // of the task's first row

  static int64_t chunk_lines(const Problem& p) { return std::min(p.lines(), Block::kLines); }
  static int64_t waiting_bytes(const Problem& p, int64_t panels) {
    return panels * block_rows(p) * static_cast<int64_t>(sizeof(typename Block::Waiting));
  }
  static int64_t prepared_bytes(const Problem& p) {
    return p.prepared ? 0 : align64(block_rows(p) * Block::row_prepared(p) * static_cast<int64_t>(sizeof(int32_t)));
  }
  static int64_t scratch_bytes(const Problem& p, int64_t panels) {
    return waiting_bytes(p, panels) + Block::unpacked_bytes(p, chunk_lines(p)) + prepared_bytes(p);
  }

  Task(const Problem& problem, const Share& part, uint8_t* scratch)
      : p(problem), share(part), rows(part.last_row - part.first_row), lines(chunk_lines(problem)) {
    waiting = reinterpret_cast<typename Block::Waiting*>(scratch);
    unpacked = scratch + waiting_bytes(p, share.last_panel - share.first_panel);
    prepared = p.prepared ? p.prepared + share.first_row * Block::row_prepared(p)
                          : prepare(unpacked + Block::unpacked_bytes(p, lines));
  }

  const int32_t* prepare(uint8_t* at) const {
    auto* out = reinterpret_cast<int32_t*>(at);
    for (int64_t row = share.first_row; row < share.last_row; ++row) {
      const RowGroup group = group_of(p, row, Block::kRows);
      Block::prepare(p, group, row, out + (group.first - share.first_row) * Block::row_prepared(p));
    }
    return out;
  }

  CodeRows rows_from(int64_t row) const {
    return {p.row(share.first_row + row), prepared + row * Block::row_prepared(p), p.x.limbs * p.x.stride, p.x.stride,
            Block::row_prepared(p)};
  }

  Chunk chunk(int64_t first) const {
    const int64_t count = std::min(lines, p.lines() - first);
    return {first, count, first == 0, first + count == p.lines()};
  }

  // Few rows stay in L2 over the whole depth: then a panel's codes are read in one go.
  void run() const {
    if (p.x.limbs * rows * p.x.stride <= kRowsBytes) {
      for (int64_t panel = share.first_panel; panel < share.last_panel; ++panel)
        for (int64_t first = 0; first < p.lines(); first += lines) run_chunk(chunk(first), panel, waiting);
      return;
    }
    for (int64_t first = 0; first < p.lines(); first += lines)
      for (int64_t panel = share.first_panel; panel < share.last_panel; ++panel)
        run_chunk(chunk(first), panel, waiting + (panel - share.first_panel) * block_rows(p));
  }

  void run_chunk(const Chunk& c, int64_t panel, typename Block::Waiting* sums) const {
    Block::unpack(p, source_of<Source>(*p.w, panel), c, unpacked);
    for (int64_t row = 0, group; row < rows; row += group) {
      group = group_from(row, rows, Block::kRows).rows;
      with_rows<std::max(Block::kRows / 2, 1), Block::kRows>(
          group, [&]<int Rows>() { Block::template multiply<Rows>(p, unpacked, c, rows_from(row), sums + row); });
    }
    if (!c.closes) return;
    const PanelEnd end(p, panel);
    for (int64_t row = 0; row < rows; ++row) Block::finish(end, share.first_row + row, rows_from(row), sums[row]);
  }
};

// The functions of defaults/gemm.h. Forms has applies(problem) and with_block(problem, f), which calls f(form).
template <class Forms>
struct Gemm {
  static bool applies(const Problem& p) { return Forms::applies(p); }
  static int64_t block_rows(const Problem& p) { return gemm_blocks::block_rows(p); }
  static int64_t scratch_bytes(const Problem& p, int64_t panels) {
    return Forms::with_block(p, [&]<class Block>(Block) { return Task<Block>::scratch_bytes(p, panels); });
  }
  static void run(const Problem& p, const Share& share, uint8_t* scratch) {
    Forms::with_block(p, [&]<class Block>(Block) { Task<Block>(p, share, scratch).run(); });
  }
  static int64_t row_prepared(const Problem& p) {
    return Forms::with_block(p, [&]<class Block>(Block) { return Block::row_prepared(p); });
  }
  static void prepare(const Problem& p, int64_t row, int32_t* out) {
    Forms::with_block(p, [&]<class Block>(Block) {
      const RowGroup group = group_of(p, row, Block::kRows);
      Block::prepare(p, group, row, out + group.first * Block::row_prepared(p));
    });
  }
};

}  // namespace sf::gemm_blocks
