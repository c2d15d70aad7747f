// SPDX-License-Identifier: Apache-2.0
//
// The SVG of a forest. Rows are chosen level by level, those that were used last first, until the
// shapes are used up; a row whose branches are not all there says how many are folded.
#include <algorithm>
#include <array>
#include <numeric>

#include "tools/cli/names.h"
#include "tools/cli/tree_picture.h"

namespace cairn::cli {

namespace {

constexpr int kSvgWidth = 960, kRowHeight = 22, kHeadHeight = 64;
constexpr int kNameLeft = 10, kTokensRight = 318, kPlotLeft = 336, kPlotRight = 944;
constexpr int kFontAdvance = 8;  // A column of a monospaced font of 12 pixels, and a little more.
constexpr int kIndent = 10;
constexpr size_t kIndentsMax = 6;
// Runs are drawn in steps of this many pixels; of a narrower one the first of Where shows.
constexpr int kCell = 4;
constexpr size_t kCells = (kPlotRight - kPlotLeft) / kCell;
constexpr size_t kShapesAround = 40;  // Title, legend, ruler, notes.

constexpr std::string_view kStyle =
    "<style>"
    "svg{background:#fff;color-scheme:light dark}"
    "text{font:12px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;fill:#1b1f24;"
    "unicode-bidi:isolate}"
    ".soft{fill:#57606a}.b{font-weight:bold}"
    "path{fill:none;stroke-width:4}"
    ".stem{stroke:#8c959f;stroke-width:1}"
    ".log{stroke:#0b69c7}.table{stroke:#0f8a5f}"
    ".evicted{stroke:#c2410c;stroke-dasharray:3 3}"
    ".approximate{stroke:#a3389c;stroke-dasharray:8 2}"
    ".none{stroke:#8c959f;stroke-width:1.5}"
    ".head{fill:#1b1f24}"
    "@media "
    "(prefers-color-scheme:dark){svg{background:#0d1117}text{fill:#e6edf3}.soft{fill:#9aa4ae}"
    ".log{stroke:#58a6ff}.table{stroke:#3fb98a}.evicted{stroke:#ff8a4c}.approximate{stroke:#dd7bd6}"
    ".head{fill:#e6edf3}}"
    "</style>";

// Character by character, a wide one as two columns; cut in its middle, so that it fits.
std::string Fitted(const std::string& text, size_t columns) {
  std::vector<std::string> characters;
  for (const char c : text) {
    if (characters.empty() || (c & 0xc0) != 0x80) characters.emplace_back();
    characters.back() += c;
  }
  const auto width = [](const std::string& one) -> size_t { return one.size() > 2 ? 2 : 1; };
  const auto sum = [&](size_t all, const std::string& one) { return all + width(one); };
  if (std::accumulate(characters.begin(), characters.end(), size_t{0}, sum) <= columns) return text;
  std::string front, back;
  size_t left = columns - 1;
  for (size_t i = 0, j = characters.size(); i < j;) {
    const bool at_front = i <= characters.size() - j;
    const std::string& one = at_front ? characters[i] : characters[j - 1];
    if (width(one) > left) break;
    left -= width(one);
    if (at_front) {
      front += one;
      ++i;
    } else {
      back.insert(0, one);
      --j;
    }
  }
  return front + "…" + back;
}

class SvgWriter {
 public:
  explicit SvgWriter(const TreePicture& picture) : picture_(picture) {
    for (const ForestPicture& forest : picture.forests) {
      shown_.emplace_back(forest.rows.size(), false);
      for (const TreeRow& row : forest.rows) longest_ = std::max(longest_, row.line->head->length);
    }
    ChooseRows();
  }

  std::string Write() {
    body_ = "<title>" + MarkupText(Printable(picture_.store)) + "</title>";
    body_ += kStyle;
    Text(kNameLeft, 20, "b", "start", Fitted(Printable(picture_.store), 70));
    Text(kPlotRight, 20, "soft", "end", TimeText(picture_.made_ns));
    WriteLegend();
    WriteRuler();
    y_ = kHeadHeight;
    for (size_t i = 0; i < picture_.forests.size(); ++i) WriteForest(i);
    if (picture_.forests.empty()) Note("no branches");
    const int height = y_ + 10;
    return "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"" +
           std::to_string(kSvgWidth) + "\" height=\"" + std::to_string(height) +
           "\" viewBox=\"0 0 " + std::to_string(kSvgWidth) + ' ' + std::to_string(height) + "\">" +
           body_ + "</svg>\n";
  }

 private:
  struct Candidate {
    size_t forest, row;
  };

  const TreeRow& RowOf(const Candidate& one) const {
    return picture_.forests[one.forest].rows[one.row];
  }

  void ChooseRows() {
    size_t left = kSvgShapesMax - kShapesAround;
    std::vector<Candidate> level;
    for (size_t i = 0; i < picture_.forests.size(); ++i) {
      const std::vector<TreeRow>& rows = picture_.forests[i].rows;
      for (size_t row = 0; row < rows.size(); row += rows[row].below + 1) level.push_back({i, row});
    }
    std::vector<bool> headed(picture_.forests.size(), false);
    while (!level.empty()) {
      std::stable_sort(level.begin(), level.end(), [&](const Candidate& a, const Candidate& b) {
        return RowOf(a).line->head->used_at_ns > RowOf(b).line->head->used_at_ns;
      });
      std::vector<Candidate> next;
      for (const Candidate& one : level) {
        const size_t shapes =
            CellRuns(RowOf(one)).size() + 4 + (headed[one.forest] ? size_t{0} : size_t{2});
        if (shapes > left) return;
        left -= shapes;
        headed[one.forest] = true;
        shown_[one.forest][one.row] = true;
        const std::vector<TreeRow>& rows = picture_.forests[one.forest].rows;
        const size_t end = one.row + rows[one.row].below;
        for (size_t row = one.row + 1; row <= end; row += rows[row].below + 1) {
          next.push_back({one.forest, row});
        }
      }
      level = std::move(next);
    }
  }

  // The runs of a row in cells, [begin, end) each; empty for a row of no length.
  struct CellRun {
    Where where;
    size_t begin, end;
  };
  std::vector<CellRun> CellRuns(const TreeRow& row) const {
    std::vector<CellRun> runs;
    uint64_t at = row.line->begin;
    for (const LineRun& run : row.runs) {
      size_t begin = CellOf(at);
      const size_t end = std::max(begin + 1, CellOf(run.end));
      at = run.end;
      while (!runs.empty() && runs.back().end > begin) {
        if (runs.back().where <= run.where) {
          begin = runs.back().end;
        } else if (--runs.back().end == runs.back().begin) {
          runs.pop_back();
        }
      }
      if (begin >= end) continue;
      if (!runs.empty() && runs.back().end == begin && runs.back().where == run.where) {
        runs.back().end = end;
      } else {
        runs.push_back({run.where, begin, end});
      }
    }
    return runs;
  }

  size_t CellOf(uint64_t position) const {
    return static_cast<size_t>(static_cast<double>(position) / static_cast<double>(longest_) *
                               static_cast<double>(kCells));
  }
  static int X(size_t cell) { return kPlotLeft + static_cast<int>(cell) * kCell; }

  void Text(int x, int y, const char* style, const char* anchor, const std::string& text,
            const std::string& whole = "") {
    body_ += "<text x=\"" + std::to_string(x) + "\" y=\"" + std::to_string(y) + "\" class=\"" +
             style + "\" text-anchor=\"" + anchor + "\">" + MarkupText(text);
    if (whole != text && !whole.empty()) body_ += "<title>" + MarkupText(whole) + "</title>";
    body_ += "</text>\n";
  }
  void Path(const std::string& style, const std::string& data) {
    body_ += "<path class=\"" + style + "\" d=\"" + data + "\"/>";
  }
  static std::string Across(int from, int y, int to) {
    return "M" + std::to_string(from) + ' ' + std::to_string(y) + "H" + std::to_string(to);
  }
  void Note(const std::string& text) {
    Text(kNameLeft, y_ + 15, "soft", "start", text);
    y_ += kRowHeight;
  }

  void WriteLegend() {
    std::array<bool, kWheres> there{};
    for (const ForestPicture& forest : picture_.forests) {
      for (const TreeRow& row : forest.rows) {
        for (const LineRun& run : row.runs) there[static_cast<size_t>(run.where)] = true;
      }
    }
    int x = kNameLeft;
    for (size_t i = 0; i < kWheres; ++i) {
      if (!there[i]) continue;
      const std::string name = WhereName(static_cast<Where>(i));
      Path(name, Across(x, 37, x + 24));
      Text(x + 30, 41, "soft", "start", i == static_cast<size_t>(Where::kNone) ? "no KV" : name);
      x += 30 + static_cast<int>(name.size()) * kFontAdvance + 24;
    }
  }

  void WriteRuler() {
    if (longest_ <= 1) return;
    uint64_t step = 1;
    while (longest_ / step > 6) step = NextStep(step);
    for (uint64_t at = 0; at <= longest_; at += step) {
      const bool last = at + step > longest_;
      Text(X(CellOf(at)), 60, "soft",
           at == 0 ? "start"
           : last  ? "end"
                   : "middle",
           std::to_string(at));
    }
  }
  // 1, 2, 5, 10, 20, ...
  static uint64_t NextStep(uint64_t step) {
    uint64_t digit = step;
    while (digit >= 10) digit /= 10;
    return digit == 2 ? step / 2 * 5 : step * 2;
  }

  void WriteForest(size_t index) {
    const ForestPicture& forest = picture_.forests[index];
    const std::vector<bool>& shown = shown_[index];
    const auto count = static_cast<size_t>(std::count(shown.begin(), shown.end(), true));
    if (count == 0) {
      ++forests_left_out_;
      if (index + 1 == picture_.forests.size()) NoteForests();
      return;
    }
    Text(kNameLeft, y_ + 15, "b", "start", Fitted(Heading(forest.forest), 110));
    y_ += kRowHeight;
    std::vector<int> middle(shown.size(), 0);
    std::vector<size_t> hidden(shown.size() + 1, 0);  // Rows before this one that are not shown.
    for (size_t row = 0; row < shown.size(); ++row) {
      hidden[row + 1] = hidden[row] + (shown[row] ? 0 : 1);
    }
    size_t roots_left_out = 0;
    for (size_t row = 0; row < shown.size(); ++row) {
      if (shown[row]) {
        middle[row] = y_ + kRowHeight / 2;
        WriteRow(forest, row, middle, hidden[row + forest.rows[row].below + 1] - hidden[row]);
        y_ += kRowHeight;
      } else if (forest.rows[row].parent == SIZE_MAX) {
        ++roots_left_out;
      }
    }
    if (roots_left_out > 0) Note("and " + Plural(roots_left_out, "more tree"));
    if (index + 1 == picture_.forests.size()) NoteForests();
  }
  void NoteForests() {
    if (forests_left_out_ > 0) Note("and trees of " + Plural(forests_left_out_, "more model"));
  }

  void WriteRow(const ForestPicture& forest, size_t index, const std::vector<int>& middle,
                size_t folded) {
    const TreeRow& row = forest.rows[index];
    const SeenBranch& head = *row.line->head;
    const int y = middle[index];
    const int left = kNameLeft + kIndent * static_cast<int>(std::min(row.depth, kIndentsMax));
    std::string tokens = std::to_string(head.length);
    if (folded > 0) tokens = "+" + std::to_string(folded) + " folded, " + tokens;
    const int room = kTokensRight - left - static_cast<int>(tokens.size() + 1) * kFontAdvance;
    const std::string label = BranchLabel(head);
    Text(left, y + 4, "", "start", Fitted(label, static_cast<size_t>(room / kFontAdvance)), label);
    Text(kTokensRight, y + 4, "soft", "end", tokens);
    const int begin = X(CellOf(row.line->begin));
    if (row.parent != SIZE_MAX) {
      Path("stem", "M" + std::to_string(begin) + ' ' + std::to_string(middle[row.parent]) + "V" +
                       std::to_string(y));
    }
    int end = begin;
    for (const CellRun& run : CellRuns(row)) {
      end = X(run.end);
      Path(WhereName(run.where), Across(X(run.begin), y, end));
    }
    body_ += "<circle class=\"head\" r=\"3.5\" cx=\"" + std::to_string(end) + "\" cy=\"" +
             std::to_string(y) + "\"/>\n";
  }

  const TreePicture& picture_;
  std::vector<std::vector<bool>> shown_;  // By forest and row.
  uint64_t longest_ = 1;
  size_t forests_left_out_ = 0;
  int y_ = 0;
  std::string body_;
};

}  // namespace

std::string TreeSvg(const TreePicture& picture) { return SvgWriter(picture).Write(); }

}  // namespace cairn::cli
