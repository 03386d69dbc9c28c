// The head's best or drawn token of each row, without logits.
#pragma once
#include "products/competition.h"
#include "products/products.h"

namespace outrider {

class Head {
 public:
  Head(Pool& pool, Products& products, Competition& competition)
      : pool_(pool), products_(products), competition_(competition) {}

  // The best output of each row x [n, cols] as `draws` [n] say, or as it is if they are null: out [n],
  // -1 for a row of which some output is not finite.
  void best(const Matrix& m, const float* x, int n, const Draw* draws, int64_t* out);

 private:
  Pool& pool_;
  Products& products_;
  Competition& competition_;
};

}  // namespace outrider
