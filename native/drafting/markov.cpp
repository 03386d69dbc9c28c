#include "drafting/markov.h"

namespace outrider {

// The rows of all blocks that are as far along as one another.
struct MarkovDecoder::Step {
  std::vector<int> blocks;
  std::vector<int64_t> previous;  // by block: the token before the next row
  std::vector<const float*> scores;
  std::vector<Draw> draws;
};

void MarkovDecoder::open_step(const MarkovBias& bias, const float* scores, const std::vector<Block>& blocks,
                              int at, Step& step) {
  step.blocks.clear();
  step.scores.clear();
  step.draws.clear();
  for (size_t b = 0; b < blocks.size(); b++) {
    if (at >= blocks[b].length) continue;
    float* row = embedded_.data<float>() + step.blocks.size() * bias.tokens->cols;
    path_.embed(*bias.tokens, static_cast<int>(step.previous[b]), row);
    step.blocks.push_back(static_cast<int>(b));
    step.scores.push_back(scores + static_cast<size_t>(blocks[b].first + at) * bias.out->rows);
    step.draws.push_back(blocks[b].draw);
    step.draws.back().position += at;
  }
}

void MarkovDecoder::close_step(int threads, const MarkovBias& bias, const std::vector<Block>& blocks, int at,
                               Step& step, int64_t* out) {
  const int n = static_cast<int>(step.blocks.size());
  for (int i = 0; i < n; i++) {
    const int id = competition_.winner(threads, n, i);
    const int64_t token = bias.ids ? bias.ids[id] : id;
    step.previous[step.blocks[i]] = token;
    out[blocks[step.blocks[i]].first + at] = token;
  }
}

void MarkovDecoder::decode(const MarkovBias& bias, const float* scores, const std::vector<Block>& blocks,
                           int64_t* out) {
  const int rank = bias.out->cols;
  const int most = static_cast<int>(blocks.size());
  int longest = 0;
  Step step;
  for (const Block& block : blocks) {
    longest = block.length > longest ? block.length : longest;
    step.previous.push_back(block.tip);
  }
  const float* embedded = embedded_.reserve<float>(static_cast<size_t>(most) * rank);
  competition_.reserve(most);
  products_.reserve(most, rank);
  pool_.run([&](Worker& worker) {
    for (int at = 0; at < longest; at++) {
      // The first thread sets a step up and settles it while the others wait.
      if (worker.id() == 0) open_step(bias, scores, blocks, at, step);
      worker.meet();
      const int n = static_cast<int>(step.blocks.size());
      const Acts acts = products_.prepare(worker, *bias.out, {embedded, static_cast<size_t>(rank), n});
      const Shift shift{step.scores.data(), bias.ids};
      competition_.run(worker, *bias.out, acts, n, step.draws.data(), &shift);
      worker.meet();
      if (worker.id() == 0) close_step(worker.size(), bias, blocks, at, step, out);
    }
  });
}

}  // namespace outrider
