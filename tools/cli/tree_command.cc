// SPDX-License-Identifier: Apache-2.0
//
// tree: the pictures.
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "base/core/check.h"
#include "engine/exchange/output_file.h"
#include "tools/cli/command.h"
#include "tools/cli/forest.h"
#include "tools/cli/names.h"
#include "tools/cli/seen_objects.h"
#include "tools/cli/tree_picture.h"

namespace cairn::cli {

namespace {

struct TreeArguments {
  std::string store, branch;
  std::optional<std::string> ns;
  DrawOptions draw{.width = 0, .ascii = false};
  std::string html, svg;  // Files to write; empty: none.
  bool force = false;
};

size_t TerminalWidth() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return DrawOptions().width;
}

Result<engine::OutputFile> CreatePicture(const io::World& world, const std::string& path,
                                         bool replace) {
  Result<engine::OutputFile> file = engine::OutputFile::Create(world.files, path, replace);
  if (file.status().code() != StatusCode::kAlreadyExists) return file;
  return Status(StatusCode::kAlreadyExists, path + " exists; --force replaces it");
}

// The pictures that go into files.
Result<int> WritePictures(const TreeArguments& arguments, const Store& store,
                          const ForestFilter& filter, bool json) {
  if (arguments.html == arguments.svg) {
    return Status(StatusCode::kInvalidArgument, "--html and --svg name the same file");
  }
  // Both are begun before one is written: what exists costs nothing then.
  CAIRN_ASSIGN_OR_RETURN(const io::World world, io::MakeRealWorld(io::IoBackend::kThreads));
  std::vector<std::pair<std::string, engine::OutputFile>> made;
  for (const std::string* path : {&arguments.html, &arguments.svg}) {
    if (path->empty()) continue;
    CAIRN_ASSIGN_OR_RETURN(engine::OutputFile file, CreatePicture(world, *path, arguments.force));
    made.emplace_back(*path, std::move(file));
  }
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto now_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  CAIRN_ASSIGN_OR_RETURN(
      const TreePicture picture,
      MakePicture(store, arguments.store, static_cast<uint64_t>(now_ns), filter));
  Json files = Json::array();
  for (auto& [path, file] : made) {
    const std::string text = path == arguments.html ? TreePage(picture) : TreeSvg(picture);
    CAIRN_RETURN_IF_ERROR(file.Write(0, std::as_bytes(std::span(text))));
    CAIRN_RETURN_IF_ERROR(file.Finish());
    files.push_back({{"file", path}, {"bytes", text.size()}});
  }
  if (json) {
    PrintJson({{"branches", picture.branches()}, {"nodes", picture.nodes()}, {"files", files}});
    return kExitOk;
  }
  for (const Json& file : files) {
    std::printf("%s: %s on %s, %s\n", Printable(file["file"].get<std::string>()).c_str(),
                Plural(picture.branches(), "branch").c_str(),
                Plural(picture.nodes(), "node").c_str(), BytesText(file["bytes"]).c_str());
  }
  return kExitOk;
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
  if (!arguments.html.empty() || !arguments.svg.empty()) {
    return WritePictures(arguments, store, filter, json);
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
      "nothing.\n"
      "\n"
      "--html writes a page that shows more: search, fold, zoom, and of each branch where its KV\n"
      "lies, its bytes, states and content spans. It loads nothing, so it may be mailed or kept.\n"
      "--svg writes a picture of the upper levels. Both show the files: what a process has in\n"
      "memory besides is known to it alone. \"own\" bytes go when the branch is dropped, "
      "\"shared\"\n"
      "ones are needed by another branch, of any namespace; both count as the cap of a namespace.",
      "  cairn tree state\n"
      "  cairn tree state chat-42          # only the tree that it belongs to\n"
      "  cairn tree state --html tree.html && xdg-open tree.html\n"
      "  cairn tree state --ns tenant-a --svg tree.svg\n"
      "  cairn tree state --json | jq '.forests[].trees'",
      tree, RunTree);
  AddStoreArgument(command, &tree->store);
  command->add_option("BRANCH", tree->branch, "Only the tree that this branch is in");
  command->add_option("--ns", tree->ns, "Namespace of BRANCH; without one, only branches of it");
  AddNumberOption(command, "--width", &tree->draw.width,
                  "Columns to fit into; the terminal's if absent")
      ->check(CLI::Range(size_t{20}, size_t{10'000}));
  command->add_flag("--ascii", tree->draw.ascii, "Draw with ASCII characters");
  command->add_option("--html", tree->html, "Write a page of it to this file");
  command->add_option("--svg", tree->svg, "Write an SVG of its upper levels to this file");
  command->add_flag("--force", tree->force, "Replace files that exist");
}

}  // namespace cairn::cli
