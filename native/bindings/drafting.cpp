// Block drafters.
#include "bindings/bindings.h"
#include "cache/page_store.h"

namespace outrider {
namespace {

using BlockArgs = std::tuple<int, int64_t, float, uint64_t, uint32_t>;

std::vector<Block> blocks_of(const std::vector<BlockArgs>& args) {
  std::vector<Block> blocks;
  int first = 0;
  for (const auto& [length, tip, temperature, seed, position] : args) {
    blocks.push_back({first, length, tip, draw_of(temperature, seed, position)});
    first += length;
  }
  return blocks;
}

void markov_decode(GuardedEngine& self, const Packed& tokens, const Packed& out, Address ids, Address scores,
                   const std::vector<BlockArgs>& args, Address chosen) {
  const std::vector<Block> blocks = blocks_of(args);
  const MarkovBias bias{&tokens.matrix, &out.matrix, at<int32_t>(ids)};
  self.alone([&](Engine& e) { e.markov.decode(bias, at(scores), blocks, at<int64_t>(chosen)); });
}

}  // namespace

void bind_drafting(nb::module_& m, EngineClass& engine) {
  nb::class_<BlockDraftWeights>(m, "BlockDraftWeights")
      .def("__init__", [](BlockDraftWeights* self, const Stack& stack, const Packed& embedding, float scale,
                          Address masks, int rows, int first, Address norm, const Packed& head,
                          const Packed& tokens, const Packed& out, Address ids, Address confidence) {
        const MarkovBias markov{&tokens.matrix, &out.matrix, at<int32_t>(ids)};
        new (self) BlockDraftWeights{&stack, &embedding.matrix, scale, at(masks), rows, first, at(norm),
                                     &head.matrix, markov, at(confidence)};
      });
  engine.def("markov_decode", markov_decode);
  engine.def("draft", [](GuardedEngine& s, const BlockDraftWeights& weights, nb::handle rows, const PageStore& p,
                         const std::vector<BlockArgs>& args, Address chosen, Address confidences) {
    const RowSet set = parse_rows(rows);
    const std::vector<Block> blocks = blocks_of(args);
    s.alone([&](Engine& e) {
      e.drafting.draft(weights, set, p.store(), blocks, at<int64_t>(chosen), at(confidences));
    });
  });
  engine.def("ingest", [](GuardedEngine& s, const Packed& fc, Address norm, const Packed& keys_values,
                          const Stack& stack, Address taps, nb::handle rows, const PageStore& p) {
    const RowSet set = parse_rows(rows);
    const ContextWeights weights{&fc.matrix, at(norm), &keys_values.matrix};
    s.alone([&](Engine& e) { e.context.ingest(weights, stack, at(taps), set, p.store()); });
  });
  engine.def("write_context", [](GuardedEngine& s, const Stack& stack, Address flat, nb::handle rows,
                                 const PageStore& p) {
    const RowSet set = parse_rows(rows);
    s.alone([&](Engine& e) { e.context.write(stack, at(flat), set, p.store()); });
  });
}

}  // namespace outrider
