// Which thread computes which span, and the merge in order.
#include "attention/attention.h"

#include "attention/key_writer.h"

namespace outrider {
namespace {

int clamp_to_span(int position) { return position < 0 ? 0 : position > SPAN ? SPAN : position; }

// Pages of one span of a task.
SpanKeys span_keys(const AttentionCall& call, const Task& task, int span) {
  SpanKeys keys{};
  const Group& g = call.rows->groups[task.group];
  const bool own = span >= task.spans;
  const int page = (own ? span - task.spans : task.first + span) * SPAN_PAGES;
  const int present = own ? (g.count + PAGE_TOKENS - 1) / PAGE_TOKENS : static_cast<int>(g.pages.size());
  for (int i = 0; i < SPAN_PAGES; i++) {
    // Pages past the end are never visited: no row sees a key there.
    const int at = page + i < present ? page + i : present - 1;
    keys.pages[i] = own ? call.block->head(task.group, task.kv, at)
                        : call.store->head(g.pages[at], call.layer, task.kv);
  }
  return keys;
}

// Visible keys of every query in one span, relative to the span's first key.
void span_bounds(const AttentionCall& call, const Task& task, int span, int* low, int* high) {
  const Group& g = call.rows->groups[task.group];
  const int window = call.plan->window;
  for (int r = 0; r < task.rows; r++) {
    int from, upto, base;
    const int row = task.row + r, position = g.start + row;
    if (span < task.spans) {
      base = (task.first + span) * SPAN;
      from = lowest(g, position, window);
      upto = call.block ? g.start : position + 1;
    } else {
      base = (span - task.spans) * SPAN;
      from = window && row - window + 1 > 0 ? row - window + 1 : 0;
      upto = call.causal ? row + 1 : g.count;
      if (window && row + window < upto) upto = row + window;
    }
    for (int h = 0; h < task.heads; h++) {
      low[r * task.heads + h] = clamp_to_span(from - base);
      high[r * task.heads + h] = clamp_to_span(upto - base);
    }
  }
}

// Pages of a unit, of whichever task it is: a search, for plans of few tasks.
SpanKeys unit_keys(const AttentionCall& call, int unit) {
  size_t t = 0;
  while (unit >= call.plan->tasks[t].unit + call.plan->tasks[t].count()) t++;
  return span_keys(call, call.plan->tasks[t], unit - call.plan->tasks[t].unit);
}

void forget(Partial* parts, int queries, float* mixed, size_t values) {
  for (int i = 0; i < queries; i++) parts[i] = {-__builtin_inff(), 0.0f};
  for (size_t i = 0; i < values; i++) mixed[i] = 0.0f;
}

}  // namespace

void Attention::reserve(const HeadLayout& layout, const AttentionPlan& plan) {
  const size_t values = static_cast<size_t>(MAX_QUERIES) * layout.width;
  lanes_.each([&](Lane& lane) {
    lane.queries.reserve<uint8_t>(layout.query_bytes() * MAX_QUERIES);
    lane.mixed.reserve<float>(values);
    lane.values.reserve<float>(values);
  });
  if (!plan.split) return;
  partials_.reserve<Partial>(static_cast<size_t>(plan.units) * MAX_QUERIES);
  values_.reserve<float>(plan.units * values);
}

void Attention::load_task(Lane& lane, const AttentionCall& call, const Task& task, Queries& queries) {
  const HeadLayout& layout = call.store->layout;
  const int first = call.rows->groups[task.group].first_row + task.row;
  const float* q[MAX_QUERIES];
  for (int r = 0; r < task.rows; r++)
    for (int h = 0; h < task.heads; h++)
      q[r * task.heads + h] = call.q + (first + r) * call.q_ld + (task.head + h) * layout.head_dim;
  queries.data = lane.queries.data<uint8_t>();
  path_.keys_of(layout).load_queries(layout, q, task.queries(), queries);
}

// Pages that lie side by side are one piece.
Ahead Attention::ahead_of(const Worker& worker, const AttentionCall& call) const {
  Ahead ahead;
  int low, high;
  worker.share(call.plan->units, low, high);
  if (low == high) return ahead;
  const SpanKeys keys = unit_keys(call, low);
  const size_t bytes = call.store->layout.bytes;
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
void Attention::attend_task(Lane& lane, const AttentionCall& call, const Task& task, int low, int high, int last,
                            const SpanSums& sums) {
  const HeadLayout& layout = call.store->layout;
  Queries queries;
  load_task(lane, call, task, queries);
  int from[MAX_QUERIES], upto[MAX_QUERIES];
  Partial own[MAX_QUERIES];
  for (int span = low; span < high; span++) {
    const size_t at = static_cast<size_t>(span - low) * MAX_QUERIES;
    span_bounds(call, task, span, from, upto);
    Partial* part = sums.merged ? own : sums.parts + at;
    float* value = sums.merged ? lane.values.data<float>() : sums.values + at * layout.width;
    SpanKeys keys = span_keys(call, task, span);
    if (task.unit + span + 1 < last) {
      const bool here = span + 1 < task.count();
      const SpanKeys after = here ? span_keys(call, task, span + 1) : unit_keys(call, task.unit + span + 1);
      for (int i = 0; i < SPAN_PAGES; i++) keys.next[i] = after.pages[i];
    }
    path_.keys_of(layout).attend(layout, queries, keys, from, upto, part, value);
    if (!sums.merged) continue;
    for (int i = 0; i < queries.count; i++)
      path_.merge(layout, sums.parts[i], sums.values + i * layout.width, part[i], value + i * layout.width);
  }
}

void Attention::finish_query(const AttentionCall& call, const Task& task, int query, const Partial& part,
                             const float* mixed) {
  const size_t row = call.rows->groups[task.group].first_row + task.row + query / task.heads;
  const int head = task.head + query % task.heads;
  const HeadLayout& layout = call.store->layout;
  path_.finish(layout, part, mixed, call.out + (row * call.heads + head) * layout.head_dim);
}

// Merge the spans of one query in order; `mixed` is scratch.
void Attention::merge_query(const AttentionCall& call, const Task& task, int query, float* mixed) {
  const HeadLayout& layout = call.store->layout;
  Partial merged;
  forget(&merged, 1, mixed, layout.width);
  for (size_t unit = task.unit; unit < static_cast<size_t>(task.unit + task.count()); unit++) {
    const size_t at = unit * MAX_QUERIES + query;
    path_.merge(layout, merged, mixed, partials_.data<Partial>()[at], values_.data<float>() + at * layout.width);
  }
  finish_query(call, task, query, merged, mixed);
}

void Attention::run(Worker& worker, const AttentionCall& call, const Ahead& ahead) {
  if (call.plan->split) {
    run_split(worker, call);
    worker.meet();
    merge_queries(worker, call);
  } else {
    run_whole(worker, call);
  }
  worker.meet(ahead);
}

// A thread takes whole tasks.
void Attention::run_whole(Worker& worker, const AttentionCall& call) {
  Lane& lane = lanes_.of(worker);
  const std::vector<Task>& tasks = call.plan->tasks;
  const int count = static_cast<int>(tasks.size());
  const size_t width = call.store->layout.width;
  Partial merged[MAX_QUERIES];
  float* mixed = lane.mixed.data<float>();
  int low, high;
  // Later rows see more keys: longest tasks first.
  while (worker.take(count, 1, low, high)) {
    const Task& task = tasks[count - 1 - low];
    forget(merged, MAX_QUERIES, mixed, MAX_QUERIES * width);
    attend_task(lane, call, task, 0, task.count(), task.unit + task.count(), {merged, mixed, true});
    for (int i = 0; i < task.queries(); i++) finish_query(call, task, i, merged[i], mixed + i * width);
  }
}

// A thread takes spans of any tasks; their sums wait to be merged.
void Attention::run_split(Worker& worker, const AttentionCall& call) {
  Lane& lane = lanes_.of(worker);
  const std::vector<Task>& tasks = call.plan->tasks;
  const size_t values = static_cast<size_t>(MAX_QUERIES) * call.store->layout.width;
  Partial* partials = partials_.data<Partial>();
  float* all = values_.data<float>();
  int low, high, first, last;
  worker.share(call.plan->units, first, last);
  while (worker.take_run(call.plan->units, low, high)) {
    // The units after a run of this thread's own are its next run.
    const int asked = low >= first && high <= last ? last : high;
    for (int t = 0; low < high; t++) {
      const Task& task = tasks[t];
      const int end = task.unit + task.count();
      if (low >= end) continue;
      const int upto = high < end ? high : end;
      const SpanSums sums{partials + static_cast<size_t>(low) * MAX_QUERIES, all + low * values, false};
      attend_task(lane, call, task, low - task.unit, upto - task.unit, asked, sums);
      low = upto;
    }
  }
}

void Attention::merge_queries(Worker& worker, const AttentionCall& call) {
  const std::vector<Task>& tasks = call.plan->tasks;
  const int most = call.plan->queries, count = static_cast<int>(tasks.size());
  float* mixed = lanes_.of(worker).mixed.data<float>();
  int low, high;
  while (worker.take_run(count * most, low, high))
    for (int i = low; i < high; i++)
      if (i % most < tasks[i / most].queries()) merge_query(call, tasks[i / most], i % most, mixed);
}

void Attention::write(const Store& store, int layer, const float* k, const float* v, const RowSet& rows) {
  const size_t ld = static_cast<size_t>(store.kv_heads) * store.layout.head_dim;
  for (const Group& g : rows.groups) {
    for (int r = 0; r < g.count; r++) {
      const int position = g.start + r;
      for (int kv = 0; kv < store.kv_heads; kv++) {
        const size_t at = (g.first_row + r) * ld + kv * store.layout.head_dim;
        write_cached(path_, store, g, layer, kv, position, k + at, v + at);
      }
    }
  }
}

void Attention::attend(const Store& store, int layer, const float* q, const RowSet& rows, int heads,
                       int window, float* out) {
  const AttentionPlan plan =
      plan_attention(rows, heads, store.kv_heads, window, OwnKeys::CACHED, pool_.size());
  reserve(store.layout, plan);
  const size_t ld = static_cast<size_t>(heads) * store.layout.head_dim;
  const AttentionCall call{&store, layer, &rows, &plan, q, ld, heads, nullptr, true, out};
  pool_.run([&](Worker& worker) { run(worker, call); });
}

void Attention::attend_block(const Store& store, int layer, const float* q, const float* k,
                             const float* v, const RowSet& rows, int heads, int window, bool causal,
                             float* out) {
  const AttentionPlan plan =
      plan_attention(rows, heads, store.kv_heads, window, OwnKeys::BLOCK, pool_.size());
  reserve(store.layout, plan);
  block_.reserve(store.layout, rows, store.kv_heads);
  const size_t width = static_cast<size_t>(store.kv_heads) * store.layout.head_dim;
  for (size_t i = 0; i < rows.groups.size(); i++) {
    const Group& g = rows.groups[i];
    for (int r = 0; r < g.count; r++) {
      const size_t at = (g.first_row + r) * width;
      block_.write(path_, static_cast<int>(i), r, k + at, v + at);
    }
  }
  const size_t ld = static_cast<size_t>(heads) * store.layout.head_dim;
  const AttentionCall call{&store, layer, &rows, &plan, q, ld, heads, &block_, causal, out};
  pool_.run([&](Worker& worker) { run(worker, call); });
}

}  // namespace outrider
