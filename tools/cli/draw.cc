// SPDX-License-Identifier: Apache-2.0
//
// The picture of a forest:
//
//   ○────────┬───┬──────────● chat-42  1204 tokens
//            │   ╰─────● what-if  812 tokens, left at 610
//            ╰──┬────────────────● retry  1530 tokens, left at 300
//               ╰──● short  450 tokens, left at 400
//
// A line is a branch from where it leaves another one to its end. Branches that leave a line are
// drawn below it, the rightmost first: so the strokes downwards never cross a line. Columns are to
// scale, except that everything on a line lies right of where the line begins.
#include <algorithm>
#include <cmath>
#include <set>

#include "tools/cli/forest.h"
#include "tools/cli/names.h"
#include "tools/cli/tree_lines.h"

namespace cairn::cli {

namespace {

struct Glyphs {
  const char *root, *line, *leave, *down, *tee, *corner, *head;
};
constexpr Glyphs kBoxGlyphs = {"○", "─", "┬", "│", "├", "╰", "●"};
constexpr Glyphs kAsciiGlyphs = {"o", "-", "+", "|", "+", "`", "*"};

// The columns of a line.
struct Columns {
  size_t first = 0, last = 0;
};

class Picture {
 public:
  Picture(const Forest& forest, const DrawOptions& options)
      : options_(options),
        glyphs_(options.ascii ? kAsciiGlyphs : kBoxGlyphs),
        tree_(MakeLines(forest)),
        columns_(tree_.lines.size()) {
    ChooseScale();
  }

  std::string ToString() {
    for (const size_t root : tree_.roots) DrawTree(root);
    return text_;
  }

 private:
  std::string Label(const TreeLine& line, bool root) const {
    const SeenBranch& info = *line.head;
    std::string label = BranchLabel(info) + "  " + Plural(info.length, "token");
    if (info.restorable.value_or(info.length) != info.length) {
      label += ", KV up to " + KvText(info);
    }
    if (!root) label += ", left at " + std::to_string(line.begin);
    return label;
  }

  void ChooseScale() {
    uint64_t longest = 1;
    size_t label = 0;
    for (const TreeLine& line : tree_.lines) {
      longest = std::max(longest, line.head->length);
      label = std::max(label, DisplayWidth(Label(line, false)));
    }
    constexpr size_t kMinColumns = 24;
    const size_t beside = std::min(options_.width, label + 3);
    const size_t columns = std::max(kMinColumns, options_.width - beside);
    scale_ = static_cast<double>(columns) / static_cast<double>(longest);
  }

  size_t Column(uint64_t position) const {
    return static_cast<size_t>(std::lround(static_cast<double>(position) * scale_));
  }

  // Columns of a line whose first is known, and of where others leave it: in the order of the
  // lines, as Column is monotonic.
  void Place(size_t index) {
    const TreeLine& line = tree_.lines[index];
    Columns& columns = columns_[index];
    columns.last = std::max(columns.first + 1, Column(line.head->length));
    for (const size_t child : line.leaving) {
      const size_t first = std::max(columns.first + 1, Column(tree_.lines[child].begin));
      columns_[child].first = first;
      columns.last = std::max(columns.last, first + 1);
    }
  }

  void DrawTree(size_t root) {
    struct Open {
      size_t line;
      bool more_below;  // Another line leaves the same one in the same column, further down.
    };
    std::multiset<size_t> strokes;  // Columns of lines still to come.
    std::vector<Open> open{{root, false}};
    while (!open.empty()) {
      const auto [index, more_below] = open.back();
      open.pop_back();
      const TreeLine& line = tree_.lines[index];
      Place(index);
      if (index != root) strokes.erase(strokes.find(columns_[index].first));
      DrawLine(index, index == root, more_below, strokes);
      for (size_t i = line.leaving.size(); i-- > 0;) {
        const size_t column = columns_[line.leaving[i]].first;
        const bool more =
            i + 1 < line.leaving.size() && columns_[line.leaving[i + 1]].first == column;
        open.push_back({line.leaving[i], more});
        strokes.insert(column);
      }
    }
  }

  void DrawLine(size_t index, bool root, bool more_below, const std::multiset<size_t>& strokes) {
    const TreeLine& line = tree_.lines[index];
    const Columns& columns = columns_[index];
    std::set<size_t> leaves;
    for (const size_t child : line.leaving) leaves.insert(columns_[child].first);
    for (size_t column = 0; column < columns.first; ++column) {
      text_ += strokes.contains(column) ? glyphs_.down : " ";
    }
    text_ += root ? glyphs_.root : more_below ? glyphs_.tee : glyphs_.corner;
    for (size_t column = columns.first + 1; column < columns.last; ++column) {
      text_ += leaves.contains(column) ? glyphs_.leave : glyphs_.line;
    }
    text_ += glyphs_.head;
    text_ += " " + Label(line, root) + "\n";
  }

  const DrawOptions& options_;
  const Glyphs& glyphs_;
  const TreeLines tree_;
  std::vector<Columns> columns_;
  double scale_ = 1;
  std::string text_;
};

}  // namespace

std::string Draw(const Forest& forest, const DrawOptions& options) {
  std::string text = Heading(forest) + "\n";
  text += Picture(forest, options).ToString();
  for (const SeenBranch& info : forest.empty) {
    text += std::string(options.ascii ? kAsciiGlyphs.head : kBoxGlyphs.head) + " " +
            BranchLabel(info) + "  empty\n";
  }
  return text;
}

}  // namespace cairn::cli
