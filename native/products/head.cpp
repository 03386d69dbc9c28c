// Outputs that compete: the head's best or drawn token, and walks along drafted blocks.
#include <limits>

#include "engine.h"

namespace outrider {

// Let all outputs of `m` compete for n rows; every thread keeps its own best.
void Engine::compete(Worker& worker, const Matrix& m, const Acts& acts, int n, const Draw* draws,
                     const Shift* shift) {
  Best* mine = bests_.as<Best>(0) + static_cast<size_t>(worker.id()) * n;
  for (int r = 0; r < n; r++) {
    for (int l = 0; l < TILE; l++) {
      mine[r].value[l] = -std::numeric_limits<float>::infinity();
      mine[r].id[l] = std::numeric_limits<int32_t>::max();
      mine[r].poison[l] = 0.0f;
    }
  }
  int low, high;
  while (worker.take_run(m.tiles, low, high))
    path_.best(m, low, high, acts, n, draws, shift, mine);
}

// The lowest of the best outputs of one of n rows; 0 if no output is a number.
int Engine::winner(int threads, int n, int row) {
  const Best* bests = bests_.as<Best>(0);
  float value = -std::numeric_limits<float>::infinity();
  int32_t id = std::numeric_limits<int32_t>::max();
  for (int t = 0; t < threads; t++) {
    const Best& b = bests[static_cast<size_t>(t) * n + row];
    for (int l = 0; l < TILE; l++) {
      if (b.value[l] > value || (b.value[l] == value && b.id[l] < id)) {
        value = b.value[l];
        id = b.id[l];
      }
    }
  }
  return value == -std::numeric_limits<float>::infinity() ? 0 : id;
}

// Whether all outputs of one of n rows were finite.
bool Engine::sound(int threads, int n, int row) {
  const Best* bests = bests_.as<Best>(0);
  for (int t = 0; t < threads; t++)
    for (float poison : bests[static_cast<size_t>(t) * n + row].poison)
      if (!(poison == 0.0f)) return false;
  return true;
}

// The best output of each row, -1 for a row of which some output is not finite.
void Engine::best(const Matrix& m, const float* x, int n, const Draw* draws, int64_t* out) {
  reserve_inputs(n, m.cols);
  bests_.as<Best>(static_cast<size_t>(pool_.size()) * n);
  pool_.run([&](Worker& worker) {
    const Acts acts = prepare(worker, m, x, m.cols, n, nullptr, 0.0f);
    compete(worker, m, acts, n, draws, nullptr);
    worker.meet();
    if (worker.id() != 0) return;
    for (int r = 0; r < n; r++)
      out[r] = sound(worker.size(), n, r) ? winner(worker.size(), n, r) : -1;
  });
}

// The rows of all blocks that are as far along as one another.
struct Engine::Step {
  std::vector<int> blocks;
  std::vector<int64_t> previous;  // by block: the token before the next row
  std::vector<const float*> scores;
  std::vector<Draw> draws;
};

void Engine::open_step(const Chain& chain, const float* scores, const std::vector<Block>& blocks,
                       int at, Step& step) {
  step.blocks.clear();
  step.scores.clear();
  step.draws.clear();
  for (size_t b = 0; b < blocks.size(); b++) {
    if (at >= blocks[b].length) continue;
    float* row = embedded_.as<float>(0) + step.blocks.size() * chain.tokens->cols;
    path_.embed(*chain.tokens, static_cast<int>(step.previous[b]), row);
    step.blocks.push_back(static_cast<int>(b));
    step.scores.push_back(scores + static_cast<size_t>(blocks[b].first + at) * chain.out->rows);
    step.draws.push_back(blocks[b].draw);
    step.draws.back().position += at;
  }
}

void Engine::close_step(int threads, const Chain& chain, const std::vector<Block>& blocks, int at,
                        Step& step, int64_t* out) {
  const int n = static_cast<int>(step.blocks.size());
  for (int i = 0; i < n; i++) {
    const int id = winner(threads, n, i);
    const int64_t token = chain.ids ? chain.ids[id] : id;
    step.previous[step.blocks[i]] = token;
    out[blocks[step.blocks[i]].first + at] = token;
  }
}

void Engine::walk(const Chain& chain, const float* scores, const std::vector<Block>& blocks,
                  int64_t* out) {
  const int rank = chain.out->cols;
  const int most = static_cast<int>(blocks.size());
  int longest = 0;
  Step step;
  for (const Block& block : blocks) {
    longest = block.length > longest ? block.length : longest;
    step.previous.push_back(block.tip);
  }
  embedded_.as<float>(static_cast<size_t>(most) * rank);
  bests_.as<Best>(static_cast<size_t>(pool_.size()) * most);
  reserve_inputs(most, rank);
  pool_.run([&](Worker& worker) {
    for (int at = 0; at < longest; at++) {
      // The first thread sets a step up and settles it while the others wait.
      if (worker.id() == 0) open_step(chain, scores, blocks, at, step);
      worker.meet();
      const int n = static_cast<int>(step.blocks.size());
      const Acts acts = prepare(worker, *chain.out, embedded_.as<float>(0), rank, n, nullptr, 0.0f);
      const Shift shift{step.scores.data(), chain.ids};
      compete(worker, *chain.out, acts, n, step.draws.data(), &shift);
      worker.meet();
      if (worker.id() == 0) close_step(worker.size(), chain, blocks, at, step, out);
    }
  });
}

}  // namespace outrider
