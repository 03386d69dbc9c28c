// The operators over whole batches of rows, on every thread of a pool.
#pragma once
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "paths/path.h"
#include "threads/pool.h"
#include "weights/pack.h"

namespace outrider {

// Scratch memory that only grows, zero at first; contents do not survive growing.
class Buffer {
 public:
  Buffer() = default;
  ~Buffer() { std::free(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  template <class T>
  T* as(size_t count) {
    const size_t bytes = (count * sizeof(T) + 127) / 64 * 64;
    if (bytes > bytes_) {
      std::free(data_);
      bytes_ = 0;
      data_ = std::aligned_alloc(64, bytes);
      if (!data_) throw std::bad_alloc();
      bytes_ = bytes;
      std::memset(data_, 0, bytes);
    }
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// Consecutive rows of one session.
struct Group {
  int start;
  int count;
  int floor;
  int first_row;
  std::vector<int> pages;
};

struct RowSet {
  std::vector<Group> groups;
  int count = 0;
};

struct Layer {
  const float* attn_norm;
  const Matrix* qkv;
  const float* q_norm;  // or null
  const float* k_norm;  // or null
  const Matrix* out;
  const float* mlp_norm;
  const Matrix* gate_up;
  const Matrix* down;
  int window;  // 0: sees all
  bool causal;
};

struct Stack {
  std::vector<Layer> layers;
  int heads;
  int kv_heads;
  int head_dim;
  int hidden;
  float eps;
  const float* cos;
  const float* sin;
};

// Queries of some rows of one group that share a key head, and the spans they look at: `spans`
// cached ones from span `first`, then `block_spans` of the group's own rows.
struct Task {
  int group;
  int kv;
  int head;
  int heads;
  int row;  // in the group
  int rows;
  int first;
  int spans;
  int block_spans;
  int unit;  // spans of the tasks before this one

  int count() const { return spans + block_spans; }
  int queries() const { return rows * heads; }
};

// Where the sums of a task's spans go: merged into one place, or one place after another.
struct SpanSums {
  Partial* parts;
  float* values;
  bool merged;
};

struct AttentionPlan {
  int window;
  std::vector<Task> tasks;
  int units = 0;
  int queries = 0;     // most of a task
  bool split = false;  // few tasks with many spans: threads share the spans of a task
};

// What attention of one layer reads and writes.
struct Attention {
  const Store* store;
  int layer;
  const RowSet* rows;
  const AttentionPlan* plan;
  const float* q;  // row r, head j at q + r * q_ld + j * head_dim
  size_t q_ld;
  int heads;
  const uint8_t* block;  // the groups' own rows: [group][kv][page], or null
  const size_t* block_first;  // pages before a group
  bool causal;
  float* out;  // [n, heads * head_dim]
};

// A walk along blocks of rows, left to right: a row's scores are its own plus out * tokens[previous],
// where previous is what the row before it chose.
struct Chain {
  const Matrix* tokens;  // [V, r]
  const Matrix* out;     // [V', r]
  const int32_t* ids;    // target ids of the outputs, padded to whole tiles; null: their own numbers
};

// One block of a walk: its rows of the scores, the token before it, and how it draws (positions count
// on from its first row).
struct Block {
  int first;
  int length;
  int64_t tip;
  Draw draw;
};

// What turns tips into drafted blocks.
struct Sketch {
  const Stack* stack;
  const Matrix* embedding;
  float scale;         // of a tip's embedding
  const float* masks;  // [rows, H]: a block before its tip is set
  int rows;
  int first;  // block row that predicts the first token
  const float* norm;
  const Matrix* head;
  Chain chain;
  const float* confidence;  // [H + r + 1], or null
};

// Scratch of one thread.
struct Lane {
  Buffer lines, scales, floats, row, wide, queries, mixed, values;
};

class Engine {
 public:
  Engine(const Path& path, int threads);

  const Path& path() const { return path_; }
  Pool& pool() { return pool_; }
  Arena& arena() { return arena_; }

  void norm(const float* x, const float* weight, float eps, int n, int cols, float* out);
  void linear(const Matrix& m, const float* x, int n, float* out);
  void swiglu(const float* x, int n, int cols, float* out);
  void rotate(const float* x, const int64_t* positions, int n, int heads, int head_dim,
              const float* cos, const float* sin, float* out);
  void embed(const Matrix& m, const int64_t* ids, int n, float* out);
  void best(const Matrix& m, const float* x, int n, const Draw* draws, int64_t* out);
  // Target ids of every row; scores [rows, V'], in blocks one after another.
  void walk(const Chain& chain, const float* scores, const std::vector<Block>& blocks, int64_t* out);

  // Target ids and confidences of every block's rows; a group of `rows` per block.
  void draft(const Sketch& sketch, const RowSet& rows, const Store& store,
             const std::vector<Block>& blocks, int64_t* out, float* confidences);
  // Context rows of tapped states [n, taps H], written for all layers.
  void ingest(const Matrix& fc, const float* norm, const Matrix& keys_values, const Stack& stack,
              const float* taps, const RowSet& rows, const Store& store);

  void write(const Store& store, int layer, const float* k, const float* v, const RowSet& rows);
  void attend(const Store& store, int layer, const float* q, const RowSet& rows, int heads,
              int window, float* out);
  void attend_block(const Store& store, int layer, const float* q, const float* k, const float* v,
                    const RowSet& rows, int heads, int window, bool causal, float* out);

  // Keys of flat [n, layers * 2 g d] are normed and rotated in place, then written with the values.
  void write_context(const Stack& stack, float* flat, const RowSet& rows, const Store& store);
  // x [n, H] becomes the residual stream after the last layer; taps [n, num_taps * H].
  void run(const Stack& stack, float* x, const RowSet& rows, const Store& store, bool block,
           const std::vector<int>& taps, float* tapped);

 private:
  struct Pass;

  AttentionPlan plan(const RowSet& rows, int heads, int kv_heads, int window, bool block) const;
  size_t reserve_block(const HeadLayout& layout, const RowSet& rows, int kv_heads);
  void reserve_lanes(const HeadLayout& layout, const AttentionPlan& plan);
  uint8_t* block_head(const HeadLayout& layout, int kv_heads, int group, int kv, int page);
  void write_block_row(const HeadLayout& layout, int kv_heads, int group, int row, const float* k,
                       const float* v);

  struct Step;

  float confidence(const Sketch& sketch, const float* state, int64_t previous);

  void compete(Worker& worker, const Matrix& m, const Acts& acts, int n, const Draw* draws,
               const Shift* shift);
  int winner(int threads, int n, int row);
  bool sound(int threads, int n, int row);
  void open_step(const Chain& chain, const float* scores, const std::vector<Block>& blocks, int at,
                 Step& step);
  void close_step(int threads, const Chain& chain, const std::vector<Block>& blocks, int at, Step& step,
                  int64_t* out);

  Acts prepare(Worker& worker, const Matrix& m, const float* x, size_t ld, int n,
               const float* weight, float eps);
  void prepare_row(const Matrix& m, const float* x, const float* weight, float eps,
                   const Acts& acts, int row, float* scratch);
  void reserve_inputs(int n, int cols);
  // `ahead`: what each thread reads in the next phase.
  void product(Worker& worker, const Matrix& m, const Acts& acts, int n, const Outputs& out,
               const Ahead& ahead = {});

  void attention(Worker& worker, const Attention& a, const Ahead& ahead = {});
  void attend_task(Lane& lane, const Attention& a, const Task& task, int low, int high, int last,
                   const SpanSums& sums);
  void load_task(Lane& lane, const Attention& a, const Task& task, Queries& queries);
  void merge_query(const Attention& a, const Task& task, int query, float* mixed);
  void finish_query(const Attention& a, const Task& task, int query, const Partial& part, const float* mixed);
  SpanKeys span_keys(const Attention& a, const Task& task, int span) const;
  SpanKeys unit_keys(const Attention& a, int unit) const;
  Ahead ahead_of_keys(const Worker& worker, const Attention& a) const;
  void span_bounds(const Attention& a, const Task& task, int span, int* low, int* high) const;

  void project(Worker& worker, Pass& pass, const Layer& layer, int index, const Ahead& ahead);
  void run_layer(Worker& worker, Pass& pass, int index);
  void feed_forward(Worker& worker, Pass& pass, const Layer& layer, const Ahead& after);

  const Path& path_;
  Pool pool_;
  Arena arena_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  Buffer lines_, scales_, floats_, flat_, mixed_, hidden_lines_, hidden_scales_, hidden_floats_;
  Buffer wide_, block_, partials_, values_, bests_, embedded_, block_rows_, states_, scores_;
  std::vector<size_t> block_first_;
};

}  // namespace outrider
