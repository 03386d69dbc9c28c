// Attention of ragged rows over pages: which thread computes which span, and the merge in order.
#include "engine.h"

namespace outrider {
namespace {

int clamp_to_span(int position) { return position < 0 ? 0 : position > SPAN ? SPAN : position; }

int lowest(const Group& g, int position, int window) {
  if (window == 0) return g.floor;
  return position - window + 1 > g.floor ? position - window + 1 : g.floor;
}

}  // namespace

AttentionPlan Engine::plan(const RowSet& rows, int heads, int kv_heads, int window, bool block) const {
  AttentionPlan plan;
  plan.window = window;
  const int share = heads / kv_heads;
  const int per = share < MAX_QUERIES ? share : MAX_QUERIES;  // heads of one task
  const int most = MAX_QUERIES / per;                         // rows of one task
  int longest = 0;
  for (size_t i = 0; i < rows.groups.size(); i++) {
    const Group& g = rows.groups[i];
    for (int row = 0; row < g.count; row += most) {
      const int count = g.count - row < most ? g.count - row : most;
      const int low = lowest(g, g.start + row, window);
      const int high = block ? g.start : g.start + row + count;
      const int first = low / SPAN;
      const int spans = high > low ? (high + SPAN - 1) / SPAN - first : 0;
      const int own = block ? (g.count + SPAN - 1) / SPAN : 0;
      longest = spans + own > longest ? spans + own : longest;
      for (int head = 0; head < heads; head += per) {
        const int kv = head / share;
        const int end = (kv + 1) * share;
        const int taken = end - head < per ? end - head : per;
        plan.tasks.push_back({static_cast<int>(i), kv, head, taken, row, count, first, spans, own, plan.units});
        plan.units += spans + own;
        plan.queries = count * taken > plan.queries ? count * taken : plan.queries;
        if (taken < per) head -= per - taken;
      }
    }
  }
  plan.split = pool_.size() > 1 && longest > 2 && static_cast<int>(plan.tasks.size()) < 4 * pool_.size();
  return plan;
}

size_t Engine::reserve_block(const HeadLayout& layout, const RowSet& rows, int kv_heads) {
  block_first_.clear();
  size_t pages = 0;
  for (const Group& g : rows.groups) {
    block_first_.push_back(pages);
    pages += (g.count + PAGE_TOKENS - 1) / PAGE_TOKENS;
  }
  block_.as<uint8_t>(pages * kv_heads * layout.bytes);
  return pages;
}

uint8_t* Engine::block_head(const HeadLayout& layout, int kv_heads, int group, int kv, int page) {
  return block_.as<uint8_t>(0) + ((block_first_[group] + page) * kv_heads + kv) * layout.bytes;
}

void Engine::write_block_row(const HeadLayout& layout, int kv_heads, int group, int row,
                             const float* k, const float* v) {
  for (int kv = 0; kv < kv_heads; kv++) {
    uint8_t* head = block_head(layout, kv_heads, group, kv, row / PAGE_TOKENS);
    const int at = kv * layout.head_dim;
    path_.keys_of(layout).write(layout, head, row % PAGE_TOKENS, k + at, v + at);
  }
}

void Engine::reserve_lanes(const HeadLayout& layout, const AttentionPlan& plan) {
  const size_t values = static_cast<size_t>(MAX_QUERIES) * layout.width;
  for (std::unique_ptr<Lane>& lane : lanes_) {
    lane->queries.as<uint8_t>(layout.query_bytes() * MAX_QUERIES);
    lane->mixed.as<float>(values);
    lane->values.as<float>(values);
  }
  if (!plan.split) return;
  partials_.as<Partial>(static_cast<size_t>(plan.units) * MAX_QUERIES);
  values_.as<float>(plan.units * values);
}

void Engine::load_task(Lane& lane, const Attention& a, const Task& task, Queries& queries) {
  const HeadLayout& layout = a.store->layout;
  const int first = a.rows->groups[task.group].first_row + task.row;
  const float* q[MAX_QUERIES];
  for (int r = 0; r < task.rows; r++)
    for (int h = 0; h < task.heads; h++)
      q[r * task.heads + h] = a.q + (first + r) * a.q_ld + (task.head + h) * layout.head_dim;
  queries.data = lane.queries.as<uint8_t>(0);
  path_.keys_of(layout).load_queries(layout, q, task.queries(), queries);
}

SpanKeys Engine::span_keys(const Attention& a, const Task& task, int span) const {
  SpanKeys keys{};
  const Group& g = a.rows->groups[task.group];
  const HeadLayout& layout = a.store->layout;
  const bool own = span >= task.spans;
  const int page = (own ? span - task.spans : task.first + span) * SPAN_PAGES;
  const int present = own ? (g.count + PAGE_TOKENS - 1) / PAGE_TOKENS : static_cast<int>(g.pages.size());
  for (int i = 0; i < SPAN_PAGES; i++) {
    // Pages past the end are never visited: no row sees a key there.
    const int at = page + i < present ? page + i : present - 1;
    keys.pages[i] = own ? a.block + ((a.block_first[task.group] + at) * a.store->kv_heads + task.kv) * layout.bytes
                        : a.store->head(g.pages[at], a.layer, task.kv);
  }
  keys.count = SPAN;
  return keys;
}

// Visible keys of every query in one span, relative to the span's first key.
void Engine::span_bounds(const Attention& a, const Task& task, int span, int* low, int* high) const {
  const Group& g = a.rows->groups[task.group];
  const int window = a.plan->window;
  for (int r = 0; r < task.rows; r++) {
    int from, upto, base;
    const int row = task.row + r, position = g.start + row;
    if (span < task.spans) {
      base = (task.first + span) * SPAN;
      from = lowest(g, position, window);
      upto = a.block ? g.start : position + 1;
    } else {
      base = (span - task.spans) * SPAN;
      from = window && row - window + 1 > 0 ? row - window + 1 : 0;
      upto = a.causal ? row + 1 : g.count;
      if (window && row + window < upto) upto = row + window;
    }
    for (int h = 0; h < task.heads; h++) {
      low[r * task.heads + h] = clamp_to_span(from - base);
      high[r * task.heads + h] = clamp_to_span(upto - base);
    }
  }
}

// Pages of a unit, of whichever task it is: a search, for plans of few tasks.
SpanKeys Engine::unit_keys(const Attention& a, int unit) const {
  size_t t = 0;
  while (unit >= a.plan->tasks[t].unit + a.plan->tasks[t].count()) t++;
  return span_keys(a, a.plan->tasks[t], unit - a.plan->tasks[t].unit);
}

// What a thread reads first: pages that lie side by side are one piece.
Ahead Engine::ahead_of_keys(const Worker& worker, const Attention& a) const {
  Ahead ahead;
  int low, high;
  worker.share(a.plan->units, low, high);
  if (low == high) return ahead;
  const SpanKeys keys = unit_keys(a, low);
  const size_t bytes = a.store->layout.bytes;
  int part = 0;
  for (const uint8_t* page : keys.pages) {
    if (ahead.data[part] && page != ahead.data[part] + ahead.bytes[part]) part++;
    if (part == 2) break;
    if (!ahead.data[part]) ahead.data[part] = page;
    ahead.bytes[part] += bytes;
  }
  return ahead;
}

// Spans [low, high) of a task. Asks for the pages of units up to `last` one span ahead.
void Engine::attend_task(Lane& lane, const Attention& a, const Task& task, int low, int high, int last,
                         const SpanSums& sums) {
  const HeadLayout& layout = a.store->layout;
  Queries queries;
  load_task(lane, a, task, queries);
  int from[MAX_QUERIES], upto[MAX_QUERIES];
  Partial own[MAX_QUERIES];
  for (int span = low; span < high; span++) {
    const size_t at = static_cast<size_t>(span - low) * MAX_QUERIES;
    span_bounds(a, task, span, from, upto);
    Partial* part = sums.merged ? own : sums.parts + at;
    float* value = sums.merged ? lane.values.as<float>(0) : sums.values + at * layout.width;
    SpanKeys keys = span_keys(a, task, span);
    if (task.unit + span + 1 < last) {
      const bool here = span + 1 < task.count();
      const SpanKeys after = here ? span_keys(a, task, span + 1) : unit_keys(a, task.unit + span + 1);
      for (int i = 0; i < SPAN_PAGES; i++) keys.next[i] = after.pages[i];
    }
    path_.keys_of(layout).attend(layout, queries, keys, from, upto, part, value);
    if (!sums.merged) continue;
    for (int i = 0; i < queries.count; i++)
      path_.merge(layout, sums.parts[i], sums.values + i * layout.width, part[i], value + i * layout.width);
  }
}

void Engine::finish_query(const Attention& a, const Task& task, int query, const Partial& part,
                          const float* mixed) {
  const size_t row = a.rows->groups[task.group].first_row + task.row + query / task.heads;
  const int head = task.head + query % task.heads;
  path_.finish(a.store->layout, part, mixed, a.out + (row * a.heads + head) * a.store->layout.head_dim);
}

namespace {

void forget(Partial* parts, int queries, float* mixed, size_t values) {
  for (int i = 0; i < queries; i++) parts[i] = {-__builtin_inff(), 0.0f};
  for (size_t i = 0; i < values; i++) mixed[i] = 0.0f;
}

}  // namespace

// Merge the spans of one query in order; `mixed` is scratch.
void Engine::merge_query(const Attention& a, const Task& task, int query, float* mixed) {
  const HeadLayout& layout = a.store->layout;
  Partial merged;
  forget(&merged, 1, mixed, layout.width);
  for (size_t unit = task.unit; unit < static_cast<size_t>(task.unit + task.count()); unit++) {
    const size_t at = unit * MAX_QUERIES + query;
    path_.merge(layout, merged, mixed, partials_.as<Partial>(0)[at], values_.as<float>(0) + at * layout.width);
  }
  finish_query(a, task, query, merged, mixed);
}

void Engine::attention(Worker& worker, const Attention& a, const Ahead& ahead) {
  Lane& lane = *lanes_[worker.id()];
  const std::vector<Task>& tasks = a.plan->tasks;
  const size_t values = static_cast<size_t>(MAX_QUERIES) * a.store->layout.width;
  const int count = static_cast<int>(tasks.size());
  Partial merged[MAX_QUERIES];
  float* mixed = lane.mixed.as<float>(0);
  int low, high;
  if (!a.plan->split) {
    // Later rows see more keys: longest tasks first.
    while (worker.take(count, 1, low, high)) {
      const Task& task = tasks[count - 1 - low];
      forget(merged, MAX_QUERIES, mixed, values);
      attend_task(lane, a, task, 0, task.count(), task.unit + task.count(), {merged, mixed, true});
      for (int i = 0; i < task.queries(); i++)
        finish_query(a, task, i, merged[i], mixed + i * a.store->layout.width);
    }
    worker.meet(ahead);
    return;
  }
  Partial* partials = partials_.as<Partial>(0);
  float* all = values_.as<float>(0);
  int first, last;
  worker.share(a.plan->units, first, last);
  while (worker.take_run(a.plan->units, low, high)) {
    // The units after a run of this thread's own are its next run.
    const int asked = low >= first && high <= last ? last : high;
    for (int t = 0; low < high; t++) {
      const Task& task = tasks[t];
      const int end = task.unit + task.count();
      if (low >= end) continue;
      const int upto = high < end ? high : end;
      const SpanSums sums{partials + static_cast<size_t>(low) * MAX_QUERIES, all + low * values, false};
      attend_task(lane, a, task, low - task.unit, upto - task.unit, asked, sums);
      low = upto;
    }
  }
  worker.meet();
  const int most = a.plan->queries;
  while (worker.take_run(count * most, low, high))
    for (int i = low; i < high; i++)
      if (i % most < tasks[i / most].queries()) merge_query(a, tasks[i / most], i % most, mixed);
  worker.meet(ahead);
}

void Engine::write(const Store& store, int layer, const float* k, const float* v, const RowSet& rows) {
  const size_t ld = static_cast<size_t>(store.kv_heads) * store.layout.head_dim;
  for (const Group& g : rows.groups) {
    for (int r = 0; r < g.count; r++) {
      const int position = g.start + r;
      for (int kv = 0; kv < store.kv_heads; kv++) {
        const size_t at = (g.first_row + r) * ld + kv * store.layout.head_dim;
        uint8_t* head = store.head(g.pages[position / PAGE_TOKENS], layer, kv);
        path_.keys_of(store.layout).write(store.layout, head, position % PAGE_TOKENS, k + at, v + at);
      }
    }
  }
}

void Engine::attend(const Store& store, int layer, const float* q, const RowSet& rows, int heads,
                    int window, float* out) {
  const AttentionPlan p = plan(rows, heads, store.kv_heads, window, false);
  reserve_lanes(store.layout, p);
  const size_t ld = static_cast<size_t>(heads) * store.layout.head_dim;
  const Attention a{&store, layer, &rows, &p, q, ld, heads, nullptr, nullptr, true, out};
  pool_.run([&](Worker& worker) { attention(worker, a); });
}

void Engine::attend_block(const Store& store, int layer, const float* q, const float* k,
                          const float* v, const RowSet& rows, int heads, int window, bool causal,
                          float* out) {
  const AttentionPlan p = plan(rows, heads, store.kv_heads, window, true);
  reserve_lanes(store.layout, p);
  reserve_block(store.layout, rows, store.kv_heads);
  const size_t width = static_cast<size_t>(store.kv_heads) * store.layout.head_dim;
  for (size_t i = 0; i < rows.groups.size(); i++) {
    const Group& g = rows.groups[i];
    for (int r = 0; r < g.count; r++) {
      const size_t at = (g.first_row + r) * width;
      write_block_row(store.layout, store.kv_heads, static_cast<int>(i), r, k + at, v + at);
    }
  }
  const size_t ld = static_cast<size_t>(heads) * store.layout.head_dim;
  const Attention a{&store, layer, &rows, &p, q, ld, heads, block_.as<uint8_t>(0),
                    block_first_.data(), causal, out};
  pool_.run([&](Worker& worker) { attention(worker, a); });
}

}  // namespace outrider
