// SPDX-License-Identifier: Apache-2.0
//
// The forests of a store as rows of a picture, with all that a picture says about them, and the two
// forms of it: a page and an SVG. Both stand alone: they load nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/cli/forest_content.h"
#include "tools/cli/tree_lines.h"

namespace cairn::cli {

// Positions of a line, up to `end`, that lie in the same way.
struct LineRun {
  Where where = Where::kNone;
  uint64_t end = 0;
};

struct TreeRow {
  const TreeLine* line = nullptr;
  size_t parent = SIZE_MAX;  // Row of the line that this one leaves.
  size_t depth = 0;
  size_t below = 0;             // Rows of lines that leave it, and of those that leave these.
  std::vector<LineRun> runs{};  // From line->begin on.
  BranchBytes bytes{};
};

struct ForestPicture {
  Forest forest;
  TreeLines lines;            // Branches without tokens are roots as well, the last ones.
  ForestContent content;      // By node; others of the model may be among them.
  std::vector<TreeRow> rows;  // Each line followed by those that leave it.
};

struct TreePicture {
  std::string store;  // As the user named it.
  uint64_t made_ns = 0;
  std::vector<ForestPicture> forests;
  uint64_t branches() const;
  uint64_t nodes() const;
};

// Draws the forests that `filter` leaves. A branch's own bytes are those that no branch of the
// store shares, also where only one namespace is drawn.
Result<TreePicture> MakePicture(const Store& store, const std::string& path, uint64_t made_ns,
                                const ForestFilter& filter);

// What a text of HTML or XML needs.
std::string MarkupText(std::string_view text);

// The upper levels of the trees, at most this many shapes; the rest is folded.
inline constexpr size_t kSvgShapesMax = 2000;
std::string TreeSvg(const TreePicture& picture);
// A page that shows all of it by a script, and the SVG where there are none.
std::string TreePage(const TreePicture& picture);

}  // namespace cairn::cli
