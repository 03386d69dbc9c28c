// Attention of ragged rows over pages.
#pragma once
#include "attention/block_pages.h"
#include "attention/plan.h"
#include "cache/pages.h"
#include "cache/rows.h"
#include "memory/buffer.h"
#include "paths/path.h"
#include "threads/per_thread.h"
#include "threads/pool.h"

namespace outrider {

// What attention of one layer reads and writes.
struct AttentionCall {
  const Store* store;
  int layer;
  const RowSet* rows;
  const AttentionPlan* plan;
  const float* q;  // row r, head j at q + r * q_ld + j * head_dim
  size_t q_ld;
  int heads;
  const BlockPages* block;  // the groups' own rows, or null where they are cached
  bool causal;              // in a block: a row sees only rows up to itself
  float* out;               // [n, heads * head_dim]
};

// A span's softmax is computed by itself, and a query's spans are merged in order from its first: a
// row's output follows from its query and the keys that it sees, whichever rows and threads share the
// call.
class Attention {
 public:
  Attention(const Path& path, Pool& pool) : path_(path), pool_(pool), lanes_(pool) {}

  // Cache keys and values [n, kv_heads, head_dim].
  void write(const Store& store, int layer, const float* k, const float* v, const RowSet& rows);
  // Rows, whose own keys are cached, attend with q [n, heads, head_dim]; window 0: to all before them.
  void attend(const Store& store, int layer, const float* q, const RowSet& rows, int heads, int window,
              float* out);
  // Rows attend to the cache before their group and to the group itself, whose k and v are not cached.
  void attend_block(const Store& store, int layer, const float* q, const float* k, const float* v,
                    const RowSet& rows, int heads, int window, bool causal, float* out);

  // The parts of attention inside a run of the pool, for operators of several phases.
  //
  // Before the run: room for calls of that plan.
  void reserve(const HeadLayout& layout, const AttentionPlan& plan);
  // The pages of a call's own rows, where they are not cached.
  BlockPages& block() { return block_; }
  // One phase, or two for a plan that splits tasks. `ahead`: what each thread reads in the next phase.
  void run(Worker& worker, const AttentionCall& call, const Ahead& ahead = {});
  // What a thread reads first in `run` of a plan that splits tasks.
  Ahead ahead_of(const Worker& worker, const AttentionCall& call) const;

 private:
  struct Lane {
    Buffer queries, mixed, values;
  };

  // Where the sums of a task's spans go: merged into one place, or one place after another.
  struct SpanSums {
    Partial* parts;
    float* values;
    bool merged;
  };

  void run_whole(Worker& worker, const AttentionCall& call);
  void run_split(Worker& worker, const AttentionCall& call);
  void merge_queries(Worker& worker, const AttentionCall& call);
  void attend_task(Lane& lane, const AttentionCall& call, const Task& task, int low, int high, int last,
                   const SpanSums& sums);
  void load_task(Lane& lane, const AttentionCall& call, const Task& task, Queries& queries);
  void merge_query(const AttentionCall& call, const Task& task, int query, float* mixed);
  void finish_query(const AttentionCall& call, const Task& task, int query, const Partial& part,
                    const float* mixed);

  const Path& path_;
  Pool& pool_;
  PerThread<Lane> lanes_;
  BlockPages block_;
  Buffer partials_, values_;  // of all units of a plan that splits tasks
};

}  // namespace outrider
