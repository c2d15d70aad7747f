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

#include "base/core/check.h"
#include "tools/cli/forest.h"
#include "tools/cli/names.h"

namespace cairn::cli {

namespace {

struct Glyphs {
  const char *root, *line, *leave, *down, *tee, *corner, *head;
};
constexpr Glyphs kBoxGlyphs = {"○", "─", "┬", "│", "├", "╰", "●"};
constexpr Glyphs kAsciiGlyphs = {"o", "-", "+", "|", "+", "`", "*"};

// A branch's part of the picture.
struct Line {
  const SeenBranch* head = nullptr;
  uint64_t begin = 0;           // Position where it leaves the line above; 0 for roots.
  std::vector<size_t> leaving;  // Lines that leave this one.
  size_t first_column = 0, last_column = 0;
};

class Picture {
 public:
  Picture(const Forest& forest, const DrawOptions& options)
      : forest_(forest), options_(options), glyphs_(options.ascii ? kAsciiGlyphs : kBoxGlyphs) {
    for (const uint64_t root : forest.roots) roots_.push_back(MakeLine(root, 0));
    // Lines are made while earlier ones are followed: those of a chain of forks come one by one.
    while (!pending_.empty()) {
      const auto [parent, node, head] = pending_.back();
      pending_.pop_back();
      const size_t line = node != 0 ? MakeLine(node, forest_.nodes.at(node).begin) : MakeStub(head);
      lines_[parent].leaving.push_back(line);
    }
    ChooseScale();
  }

  std::string ToString() {
    for (const size_t root : roots_) DrawTree(root);
    return text_;
  }

 private:
  struct Pending {
    size_t parent;
    uint64_t node;  // Or 0: a branch that has nothing of its own.
    const SeenBranch* head;
  };

  size_t MakeStub(const SeenBranch* head) {
    lines_.push_back({head, head->length, {}});
    return lines_.size() - 1;
  }

  // Follows the node to its end and on into the node that goes on from there, until a branch ends.
  size_t MakeLine(uint64_t id, uint64_t begin) {
    const size_t line = lines_.size();
    lines_.push_back({nullptr, begin, {}});
    for (const ForestNode* node = &forest_.nodes.at(id); node != nullptr;) {
      const SeenBranch* last = nullptr;
      for (const SeenBranch& head : node->heads) {
        if (head.length != node->end) continue;
        if (last == nullptr || static_cast<uint64_t>(head.id) == node->owner) last = &head;
      }
      const ForestNode* next = nullptr;
      for (const uint64_t child : node->children) {
        const ForestNode& candidate = forest_.nodes.at(child);
        if (last == nullptr && next == nullptr && candidate.begin == node->end) {
          next = &candidate;
        } else {
          pending_.push_back({line, child, nullptr});
        }
      }
      for (const SeenBranch& head : node->heads) {
        if (&head != last) pending_.push_back({line, 0, &head});
      }
      lines_[line].head = last;
      node = next;
    }
    // A node is as long as the longest path on it, so that path ends here or goes on from here.
    CAIRN_CHECK(lines_[line].head != nullptr);
    return line;
  }

  std::string Label(const Line& line, bool root) const {
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
    for (const Line& line : lines_) {
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

  // Columns of a line whose first is known, and of where others leave it.
  void Place(Line& line) {
    line.last_column = std::max(line.first_column + 1, Column(line.head->length));
    for (const size_t child : line.leaving) {
      Line& leaving = lines_[child];
      leaving.first_column = std::max(line.first_column + 1, Column(leaving.begin));
      line.last_column = std::max(line.last_column, leaving.first_column + 1);
    }
    std::sort(line.leaving.begin(), line.leaving.end(), [&](size_t a, size_t b) {
      const Line &left = lines_[a], &right = lines_[b];
      return std::tuple(right.first_column, right.begin, static_cast<uint64_t>(left.head->id)) <
             std::tuple(left.first_column, left.begin, static_cast<uint64_t>(right.head->id));
    });
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
      Line& line = lines_[index];
      Place(line);
      if (index != root) strokes.erase(strokes.find(line.first_column));
      DrawLine(line, index == root, more_below, strokes);
      for (size_t i = line.leaving.size(); i-- > 0;) {
        const size_t column = lines_[line.leaving[i]].first_column;
        const bool more =
            i + 1 < line.leaving.size() && lines_[line.leaving[i + 1]].first_column == column;
        open.push_back({line.leaving[i], more});
        strokes.insert(column);
      }
    }
  }

  void DrawLine(const Line& line, bool root, bool more_below,
                const std::multiset<size_t>& strokes) {
    std::set<size_t> leaves;
    for (const size_t child : line.leaving) leaves.insert(lines_[child].first_column);
    for (size_t column = 0; column < line.first_column; ++column) {
      text_ += strokes.contains(column) ? glyphs_.down : " ";
    }
    text_ += root ? glyphs_.root : more_below ? glyphs_.tee : glyphs_.corner;
    for (size_t column = line.first_column + 1; column < line.last_column; ++column) {
      text_ += leaves.contains(column) ? glyphs_.leave : glyphs_.line;
    }
    text_ += glyphs_.head;
    text_ += " " + Label(line, root) + "\n";
  }

  const Forest& forest_;
  const DrawOptions& options_;
  const Glyphs& glyphs_;
  std::vector<Line> lines_;
  std::vector<size_t> roots_;
  std::vector<Pending> pending_;
  double scale_ = 1;
  std::string text_;
};

}  // namespace

std::string Draw(const Forest& forest, const DrawOptions& options) {
  std::string text = Printable(forest.model.spec.identity.name) + " (model " +
                     std::to_string(static_cast<uint64_t>(forest.model.id)) +
                     "): " + Plural(forest.branches(), "branch") + " on " +
                     Plural(forest.nodes.size(), "node") + ", " +
                     Plural(forest.stored_tokens(), "token") + " stored for " +
                     std::to_string(forest.reached_tokens()) + "\n";
  text += Picture(forest, options).ToString();
  for (const SeenBranch& info : forest.empty) {
    text += std::string(options.ascii ? kAsciiGlyphs.head : kBoxGlyphs.head) + " " +
            BranchLabel(info) + "  empty\n";
  }
  return text;
}

}  // namespace cairn::cli
