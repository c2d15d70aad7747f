// SPDX-License-Identifier: Apache-2.0
//
// compose: a prompt of named branches, and what of it is loaded.
#include <cstdio>
#include <fstream>

#include "tools/cli/command.h"
#include "tools/cli/names.h"
#include "tools/cli/output.h"
#include "tools/cli/plan_report.h"
#include "tools/cli/token_text.h"

namespace cairn::cli {

namespace {

struct ComposeArguments {
  std::string store, model, ns;
  std::vector<std::string> names;
  std::string separator, question, ids;
  uint64_t header = 0;
  std::vector<std::string> options;
};

Result<std::vector<TokenId>> IdsOf(const std::string& text, const char* option) {
  std::vector<TokenId> ids;
  CAIRN_RETURN_IF_ERROR(ParseTokens(text, &ids).WithContext(option));
  return ids;
}

Result<std::vector<TokenId>> IdsOfFile(const std::string& path, const char* option) {
  std::vector<TokenId> ids;
  if (path.empty()) return ids;
  std::ifstream file(path);
  if (!file) {
    return Status(StatusCode::kNotFound, std::string(option) + ": " + path + " cannot be opened");
  }
  CAIRN_RETURN_IF_ERROR(ReadTokens(file, &ids).WithContext(std::string(option) + " " + path));
  return ids;
}

Status WriteIds(const std::string& path, const std::vector<TokenId>& ids) {
  if (path.empty()) return Status::Ok();
  std::ofstream file(path);
  for (const TokenId id : ids) file << id << '\n';
  file.close();
  return file ? Status::Ok() : Status(StatusCode::kIoError, "--ids: " + path + " is not written");
}

Result<ComposeRequest> RequestOf(const Store& store, const ComposeArguments& arguments) {
  ComposeRequest request;
  CAIRN_ASSIGN_OR_RETURN(request.model, FindModel(store, arguments.model));
  for (const std::string& word : arguments.names) {
    const bool is_beginning = !word.empty() && word.back() == '*';
    CAIRN_ASSIGN_OR_RETURN(const std::string name,
                           Unescaped(is_beginning ? word.substr(0, word.size() - 1) : word));
    request.documents.push_back(
        {.name = name, .is_beginning = is_beginning, .begin = arguments.header});
  }
  return request;
}

Result<int> ComposeIn(const Store& store, const ComposeArguments& arguments, bool json) {
  CAIRN_ASSIGN_OR_RETURN(ComposeRequest request, RequestOf(store, arguments));
  CAIRN_ASSIGN_OR_RETURN(const std::string ns, ReadNamespace(arguments.ns));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<TokenId> separator,
                         IdsOf(arguments.separator, "--separator"));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<TokenId> question,
                         IdsOfFile(arguments.question, "--question"));
  CAIRN_ASSIGN_OR_RETURN(const BlendOptions options, ReadBlendOptions(arguments.options));
  request.ns = ns;
  request.separator = separator;
  request.question = question;
  CAIRN_ASSIGN_OR_RETURN(const Composed composed, store.Compose(request, options));
  CAIRN_RETURN_IF_ERROR(WriteIds(arguments.ids, composed.tokens));
  Json documents = Json::array();
  for (const ComposedDocument& one : composed.documents) {
    documents.push_back({{"name", one.name},
                         {"id", static_cast<uint64_t>(one.branch)},
                         {"begin", one.begin},
                         {"end", one.end}});
  }
  CAIRN_RETURN_IF_ERROR(ReportPlan(store, composed.plan, {ns}, json, {{"documents", documents}}));
  return kExitOk;
}

Result<int> RunCompose(const ComposeArguments& arguments, bool json) {
  CAIRN_ASSIGN_OR_RETURN(Store store, OpenForReading(arguments.store));
  return CloseAfter(&store, ComposeIn(store, arguments, json));
}

}  // namespace

void AddComposeCommand(CLI::App& app, Session& session) {
  const auto compose = std::make_shared<ComposeArguments>();
  CLI::App* command = AddCommand(
      app, session, "compose", Access::kLooks,
      "Put a prompt together from named branches\n\n"
      "The token ids of the branches in a row, with the separator between them and the question\n"
      "behind; and the plan that loads their KV where they stand then (docs/blend.md). NAME* is\n"
      "every branch whose name begins so.",
      "  cairn compose state contract/v3 'law/*' --ns documents --separator 12,13 \\\n"
      "    --question question.ids --ids prompt.ids\n"
      "  cairn compose state a b --json --option recompute_ratio=0.15",
      compose, RunCompose);
  AddStoreArgument(command, &compose->store);
  command->add_option("NAME", compose->names, "The documents, in order")->required();
  command->add_option("--model", compose->model, "Name of the model, if there are several");
  command->add_option("--ns", compose->ns, "Their namespace (\"\" is the default one)");
  command->add_option("--separator", compose->separator,
                      "Token ids between documents, and before the question");
  command->add_option("--question", compose->question, "A file of token ids that come last");
  AddNumberOption(command, "--header", &compose->header,
                  "Tokens that are left out where each document begins");
  command->add_option("--option", compose->options, kBlendOptionHelp);
  command->add_option("--ids", compose->ids, "A file that the prompt's token ids are written to");
}

}  // namespace cairn::cli
