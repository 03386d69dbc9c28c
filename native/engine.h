// The operators of one code path on one pool of threads: what the bindings hold.
#pragma once
#include "attention/attention.h"
#include "decoder/decoder.h"
#include "drafting/context.h"
#include "drafting/drafting.h"
#include "drafting/markov.h"
#include "paths/path.h"
#include "products/competition.h"
#include "products/head.h"
#include "products/products.h"
#include "threads/pool.h"
#include "weights/pack.h"

namespace outrider {

// Each operator knows those above it, and no other. They share the pool, which does one run at a time,
// and keep scratch between calls: one call at a time.
struct Engine {
  const Path& path;
  Pool pool;
  Arena arena;
  Products products{path, pool};
  Competition competition{path, pool};
  Head head{pool, products, competition};
  Attention attention{path, pool};
  Decoder decoder{path, pool, products, attention};
  MarkovDecoder markov{path, pool, products, competition};
  Context context{path, pool, products};
  Drafting drafting{path, products, decoder, markov};

  Engine(const Path& path, int threads) : path(path), pool(threads) {}
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
};

}  // namespace outrider
