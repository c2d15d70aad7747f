// SPDX-License-Identifier: Apache-2.0
//
// tree: the picture.
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>

#include "base/core/check.h"
#include "tools/cli/command.h"
#include "tools/cli/forest.h"
#include "tools/cli/names.h"
#include "tools/cli/seen_objects.h"

namespace cairn::cli {

namespace {

struct TreeArguments {
  std::string store, branch;
  std::optional<std::string> ns;
  DrawOptions draw{.width = 0, .ascii = false};
};

size_t TerminalWidth() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return DrawOptions().width;
}

Result<int> RunTree(const TreeArguments& arguments, bool json) {
  CAIRN_ASSIGN_OR_RETURN(const Store store, OpenForReading(arguments.store));
  ForestFilter filter;
  if (arguments.ns.has_value()) {
    CAIRN_ASSIGN_OR_RETURN(filter.ns, ReadNamespace(*arguments.ns));
  }
  if (!arguments.branch.empty()) {
    CAIRN_ASSIGN_OR_RETURN(const Branch branch, FindBranch(store, arguments.branch, arguments.ns));
    CAIRN_ASSIGN_OR_RETURN(const std::vector<PathStep> path, branch.Path());
    // Its tree may reach into other namespaces.
    filter.ns.reset();
    filter.root = path.empty() ? 0 : static_cast<uint64_t>(path.front().node);
  }
  CAIRN_ASSIGN_OR_RETURN(const std::vector<Forest> forests, LoadForests(store, filter));
  SeenObjects objects;  // Beside all branches.
  if (!arguments.ns.has_value() && arguments.branch.empty()) {
    CAIRN_ASSIGN_OR_RETURN(objects, SeeObjects(store));
  }
  if (json) {
    Json models = Json::array();
    for (const Forest& forest : forests) models.push_back(ToJson(forest));
    PrintJson({{"forests", models}, {"objects", ToJson(objects)}});
    return kExitOk;
  }
  DrawOptions draw = arguments.draw;
  if (draw.width == 0) draw.width = TerminalWidth();
  for (size_t i = 0; i < forests.size(); ++i) {
    std::printf("%s%s", i == 0 ? "" : "\n", Draw(forests[i], draw).c_str());
  }
  if (forests.empty()) std::printf("no branches\n");
  if (objects.count != 0) {
    std::printf("\n%s, which stand in no tree, by namespace:\n%s",
                Plural(objects.count, "object").c_str(), TableText(objects).c_str());
  }
  return kExitOk;
}

}  // namespace

void AddTreeCommand(CLI::App& app, Session& session) {
  const auto tree = std::make_shared<TreeArguments>();
  CLI::App* command = AddCommand(
      app, session, "tree", Access::kLooks,
      "Draw the tree of conversations\n\n"
      "One line a branch, to scale, from where it leaves another branch to its end. \"stored "
      "for\"\n"
      "compares the tokens that are stored with what the branches would take if they shared\n"
      "nothing.",
      "  cairn tree state\n"
      "  cairn tree state chat-42          # only the tree that it belongs to\n"
      "  cairn tree state --json | jq '.forests[].trees'",
      tree, RunTree);
  AddStoreArgument(command, &tree->store);
  command->add_option("BRANCH", tree->branch, "Only the tree that this branch is in");
  command->add_option("--ns", tree->ns, "Namespace of BRANCH; without one, only branches of it");
  AddNumberOption(command, "--width", &tree->draw.width,
                  "Columns to fit into; the terminal's if absent")
      ->check(CLI::Range(size_t{20}, size_t{10'000}));
  command->add_flag("--ascii", tree->draw.ascii, "Draw with ASCII characters");
}

}  // namespace cairn::cli
