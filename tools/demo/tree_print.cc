// SPDX-License-Identifier: Apache-2.0

#include "tools/demo/tree_print.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

#include "base/core/check.h"
#include "tools/demo/printable.h"

namespace cairn::demo {
namespace {

constexpr uint64_t kTokensBefore = 16;  // Shown of what a fork shares.
constexpr size_t kColumnsBefore = 28;

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g", value);
  return text;
}

// The branch's own stretch begins with the first node that it owns; the owner of the node before
// is the branch that it left.
struct Origin {
  BranchId parent{};
  uint64_t begin = 0;
};

Origin OriginOf(BranchId id, const std::vector<PathStep>& path) {
  Origin origin;
  for (const PathStep& step : path) {
    if (step.owner == id) break;
    origin = {.parent = step.owner, .begin = step.end};
  }
  return origin;
}

Result<BranchPicture> ReadBranch(const Branch& branch, const BranchInfo& info, uint64_t begin,
                                 const Decode& decode) {
  BranchPicture picture;
  picture.name = info.name;
  picture.begin = begin;
  picture.end = info.length;
  const uint64_t before = begin - std::min(begin, kTokensBefore);
  CAIRN_ASSIGN_OR_RETURN(const std::vector<TokenId> shared, branch.ReadTokens(before, begin));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<TokenId> own, branch.ReadTokens(begin, info.length));
  picture.text_before = decode(shared);
  picture.text = decode(own);
  CAIRN_ASSIGN_OR_RETURN(const Branch::StateAt state, branch.SamplerAt(info.length));
  picture.sampler = state.sampler.value_or(SamplerState());
  return picture;
}

class Drawing {
 public:
  Drawing(const std::vector<BranchPicture>& branches, size_t columns)
      : branches_(branches), columns_(columns) {}

  // `indent` stands before the branch's lines; `last`: no sibling follows.
  void Draw(size_t index, const std::string& indent, bool last) {
    const BranchPicture& branch = branches_[index];
    const bool root = branch.parent < 0;
    const std::vector<size_t> forks = ForksOf(index);
    const std::string head = indent + (root ? "" : last ? "└─ " : "├─ ");
    const std::string below = indent + (root ? "" : last ? "   " : "│  ");
    const std::string body = below + (forks.empty() ? "   " : "│  ");
    AddLine(head + branch.name + "  " + Place(branch) + "; " + SamplingText(branch.sampler));
    AddLine(body + Text(branch, columns_ - std::min(columns_ - 1, Columns(body))));
    for (const size_t fork : forks) Draw(fork, below, fork == forks.back());
  }
  std::string Take() { return std::move(lines_); }

 private:
  std::vector<size_t> ForksOf(size_t index) const {
    std::vector<size_t> forks;
    for (size_t i = 0; i < branches_.size(); ++i) {
      if (branches_[i].parent == static_cast<int>(index)) forks.push_back(i);
    }
    std::stable_sort(forks.begin(), forks.end(),
                     [&](size_t a, size_t b) { return branches_[a].begin < branches_[b].begin; });
    return forks;
  }

  static std::string Place(const BranchPicture& branch) {
    if (branch.parent < 0) return std::to_string(branch.end) + " tokens";
    return "at " + std::to_string(branch.begin) + ", +" +
           std::to_string(branch.end - branch.begin) + " tokens";
  }

  static std::string Text(const BranchPicture& branch, size_t columns) {
    if (branch.parent < 0) return Clip(Printable(branch.text), columns);
    const std::string before =
        ClipFront(Printable(branch.text_before), std::min(kColumnsBefore, columns / 2)) + "▸";
    return before + Clip(Printable(branch.text), columns - Columns(before));
  }

  void AddLine(const std::string& line) { lines_ += Clip(line, columns_) + "\n"; }

  const std::vector<BranchPicture>& branches_;
  size_t columns_;
  std::string lines_;
};

}  // namespace

std::string SamplingText(const SamplerState& sampler) {
  if (sampler.temperature == 0) return "always the likeliest token";
  std::string text = "temperature " + Number(sampler.temperature);
  if (sampler.top_p < 1) text += ", top-p " + Number(sampler.top_p);
  if (sampler.top_k > 0) text += ", top-k " + std::to_string(sampler.top_k);
  return text + ", seed " + std::to_string(sampler.philox_seed);
}

Result<std::vector<BranchPicture>> ReadTree(const Store& store, const Decode& decode) {
  CAIRN_ASSIGN_OR_RETURN(const BranchPage page, store.ListBranches("", "", SIZE_MAX));
  std::vector<BranchPicture> pictures;
  std::vector<BranchId> parents;
  std::map<BranchId, int> index_of;
  for (const BranchInfo& info : page.branches) {
    CAIRN_ASSIGN_OR_RETURN(const Branch branch, store.GetBranch(info.id));
    CAIRN_ASSIGN_OR_RETURN(const std::vector<PathStep> path, branch.Path());
    const Origin origin = OriginOf(info.id, path);
    CAIRN_ASSIGN_OR_RETURN(BranchPicture picture, ReadBranch(branch, info, origin.begin, decode));
    index_of[info.id] = static_cast<int>(pictures.size());
    pictures.push_back(std::move(picture));
    parents.push_back(origin.parent);
  }
  for (size_t i = 0; i < pictures.size(); ++i) {
    const auto parent = index_of.find(parents[i]);
    if (parent != index_of.end()) pictures[i].parent = parent->second;
  }
  return pictures;
}

std::string DrawTree(const std::vector<BranchPicture>& branches, size_t columns) {
  Drawing drawing(branches, columns);
  for (size_t i = 0; i < branches.size(); ++i) {
    if (branches[i].parent < 0) drawing.Draw(i, "", true);
  }
  std::string lines = drawing.Take();
  if (!lines.empty()) lines.pop_back();
  return lines;
}

}  // namespace cairn::demo
