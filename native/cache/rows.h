// Rows of a call: which sessions they belong to and where in them they lie.
#pragma once
#include <vector>

namespace outrider {

// Consecutive rows of one session: row i of the group is token `start` + i, and sees cached tokens
// from `floor` on. Page p of the session, tokens 32 p and on, is `pages[p]` of the store.
struct Group {
  int start;
  int count;
  int floor;
  int first_row;  // of the whole call
  std::vector<int> pages;
};

// Groups one after another; `count` rows in all.
struct RowSet {
  std::vector<Group> groups;
  int count = 0;
};

}  // namespace outrider
