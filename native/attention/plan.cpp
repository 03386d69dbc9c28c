#include "attention/plan.h"

#include "paths/path.h"

namespace outrider {

AttentionPlan plan_attention(const RowSet& rows, int heads, int kv_heads, int window, OwnKeys own,
                             int threads) {
  AttentionPlan plan;
  plan.window = window;
  const bool block = own == OwnKeys::BLOCK;
  const int share = heads / kv_heads;
  const int per = share < MAX_QUERIES ? share : MAX_QUERIES;  // heads of one task
  const int most = MAX_QUERIES / per;                         // rows of one task
  int longest = 0;
  for (size_t i = 0; i < rows.groups.size(); i++) {
    const Group& g = rows.groups[i];
    const int block_spans = block ? (g.count + SPAN - 1) / SPAN : 0;
    for (int row = 0; row < g.count; row += most) {
      const int count = g.count - row < most ? g.count - row : most;
      const int low = lowest(g, g.start + row, window);
      const int high = block ? g.start : g.start + row + count;
      const int first = low / SPAN;
      const int spans = high > low ? (high + SPAN - 1) / SPAN - first : 0;
      longest = spans + block_spans > longest ? spans + block_spans : longest;
      for (int head = 0; head < heads; head += per) {
        const int kv = head / share;
        const int end = (kv + 1) * share;
        const int taken = end - head < per ? end - head : per;
        plan.tasks.push_back(
            {static_cast<int>(i), kv, head, taken, row, count, first, spans, block_spans, plan.units});
        plan.units += spans + block_spans;
        plan.queries = count * taken > plan.queries ? count * taken : plan.queries;
        if (taken < per) head -= per - taken;
      }
    }
  }
  plan.split = threads > 1 && longest > 2 && static_cast<int>(plan.tasks.size()) < 4 * threads;
  return plan;
}

}  // namespace outrider
