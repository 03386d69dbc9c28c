// How attention of a call is cut into tasks for threads.
#pragma once
#include <vector>

#include "cache/rows.h"

namespace outrider {

// Where the keys and values of a call's own rows are: cached with those before them, or in a block
// beside the cache.
enum class OwnKeys { CACHED, BLOCK };

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

// Spans count from position 0 of a session, and a row's spans are merged in their order: no cut into
// tasks, and no number of threads, changes bits.
struct AttentionPlan {
  int window;  // 0: rows see all before them
  std::vector<Task> tasks;
  int units = 0;       // spans of all tasks
  int queries = 0;     // most of a task
  bool split = false;  // few tasks with many spans: threads share the spans of a task
};

AttentionPlan plan_attention(const RowSet& rows, int heads, int kv_heads, int window, OwnKeys own,
                             int threads);

// The first cached position that a row at `position` sees.
inline int lowest(const Group& g, int position, int window) {
  if (window == 0) return g.floor;
  return position - window + 1 > g.floor ? position - window + 1 : g.floor;
}

}  // namespace outrider
