// SPDX-License-Identifier: Apache-2.0
//
// append: token ids from the arguments, from standard input, or as JSON lines to many branches.
#include <cstdio>
#include <iostream>
#include <map>

#include "base/core/check.h"
#include "tools/cli/command.h"
#include "tools/cli/names.h"
#include "tools/cli/output.h"
#include "tools/cli/token_text.h"

namespace cairn::cli {

namespace {

struct AppendArguments {
  std::string store, branch, model = "tokens", metadata;
  std::optional<std::string> ns;
  std::vector<std::string> tokens;
  std::optional<uint64_t> expected_length;
  Durability durability = Durability::kProcess;
  bool create = false;
  bool json_lines = false;
};

Status Bad(const std::string& what) { return Status(StatusCode::kInvalidArgument, what); }

// One append, wherever it came from.
struct Item {
  std::string branch;             // As FindBranch takes it.
  std::optional<std::string> ns;  // The same.
  std::string model;
  std::vector<TokenId> tokens;
  std::optional<Json> metadata;
  std::optional<uint64_t> expected_length;
};

Result<Json> ParseJson(const std::string& text, const char* what) {
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    return Bad(std::string(what) + ", column " + std::to_string(error.byte) +
               ", is not JSON: " + Excerpt(text));
  }
}

// {"branch":"x","ns":"","model":"","tokens":[1,2],"metadata":...,"expected_length":n}; what a line
// leaves out comes from the arguments.
Result<Item> ParseLine(const std::string& line, const AppendArguments& arguments) {
  CAIRN_ASSIGN_OR_RETURN(const Json json, ParseJson(line, "the line"));
  if (!json.is_object()) return Bad("the line is no JSON object: " + Excerpt(line));
  Item item;
  item.branch = arguments.branch;
  item.ns = arguments.ns;
  item.model = arguments.model;
  for (const auto& [key, value] : json.items()) {
    const auto wrong = [&key = key](const char* wanted) {
      return Bad("\"" + key + "\" must be " + wanted);
    };
    if (key == "branch" || key == "ns" || key == "model") {
      if (!value.is_string()) return wrong("a string");
      if (key == "ns") {
        item.ns = NamespaceText(value.get<std::string>());
      } else {
        (key == "branch" ? item.branch : item.model) = value;
      }
    } else if (key == "tokens") {
      if (!value.is_array()) return wrong("an array of token ids");
      for (const Json& token : value) {
        if (!token.is_number_unsigned() || token.get<uint64_t>() > UINT32_MAX) {
          return Bad("\"tokens\"[" + std::to_string(item.tokens.size()) +
                     "]: " + Excerpt(token.dump()) + " is no token id (0 to 4294967295)");
        }
        item.tokens.push_back(token.get<TokenId>());
      }
    } else if (key == "expected_length") {
      if (!value.is_number_unsigned()) return wrong("a length");
      item.expected_length = value.get<uint64_t>();
    } else if (key == "metadata") {
      item.metadata = value;
    } else {
      return Bad("unknown key \"" + Excerpt(key) + "\"");
    }
  }
  // Beside its namespace a name is plain, as JSON has it.
  if (json.contains("ns") && json.contains("branch") && !item.branch.starts_with('#')) {
    item.branch = NameText(item.branch);
  }
  if (item.branch.empty()) return Bad("neither the line nor the arguments name a branch");
  return item;
}

class Appender {
 public:
  Appender(Store* store, const AppendArguments& arguments, bool json)
      : store_(store), arguments_(arguments), json_(json) {}

  // kInvalidArgument, and nothing is created, when the item has no token.
  Status Append(const Item& item) {
    if (item.tokens.empty()) return Bad("no token ids: nothing to append");
    CAIRN_ASSIGN_OR_RETURN(Branch branch, BranchOf(item));
    AppMetadata metadata;
    if (item.metadata.has_value()) {
      const std::vector<uint8_t> packed = Json::to_msgpack(*item.metadata);
      metadata.content_type = "application/msgpack";
      const auto bytes = std::as_bytes(std::span(packed));
      metadata.bytes.assign(bytes.begin(), bytes.end());
    }
    Delta delta;
    delta.tokens = item.tokens;
    if (item.metadata.has_value()) delta.metadata = &metadata;
    AppendOptions options;
    options.durability = arguments_.durability;
    options.expected_length = item.expected_length;
    CAIRN_ASSIGN_OR_RETURN(const uint64_t length, branch.AppendSync(delta, options));
    return Report(branch, length);
  }

 private:
  Result<Branch> BranchOf(const Item& item) {
    Result<Branch> branch = FindBranch(*store_, item.branch, item.ns);
    if (branch.status().code() != StatusCode::kNotFound) return branch;
    if (!arguments_.create) {
      if (item.branch.starts_with('#')) return branch;
      return Status(StatusCode::kNotFound,
                    std::string(branch.status().message()) + "; --create makes it");
    }
    std::optional<std::string> ns;
    if (item.ns.has_value()) {
      CAIRN_ASSIGN_OR_RETURN(ns, ReadNamespace(*item.ns));
    }
    CAIRN_ASSIGN_OR_RETURN(BranchOptions options, ReadNewBranch(item.branch, ns));
    options.durability = arguments_.durability;
    // Before anything is made, so that what fails leaves nothing.
    if (item.expected_length.value_or(0) != 0) {
      return Status(StatusCode::kConflict, std::string(branch.status().message()) +
                                               "; a new one would not have " +
                                               Plural(*item.expected_length, "token"));
    }
    CAIRN_ASSIGN_OR_RETURN(const ModelId model, ModelOf(item.model));
    return store_->CreateBranch(model, options);
  }

  // A model of that name if one is registered, else a new one without KV.
  Result<ModelId> ModelOf(const std::string& name) {
    if (const auto known = models_.find(name); known != models_.end()) return known->second;
    std::optional<ModelId> found;
    for (const ModelInfo& model : store_->Models()) {
      if (model.spec.identity.name != name) continue;
      if (found.has_value()) return Bad("several models are called " + Quoted(name));
      found = model.id;
    }
    if (!found.has_value()) {
      ModelSpec spec;
      spec.identity.name = name;
      CAIRN_ASSIGN_OR_RETURN(found, store_->RegisterModel(spec, arguments_.durability));
    }
    models_[name] = *found;
    return *found;
  }

  // At once, so that a program at the other end of a pipe knows what has happened.
  Status Report(const Branch& branch, uint64_t length) {
    CAIRN_ASSIGN_OR_RETURN(const BranchInfo info, branch.Info());
    if (json_) {
      PrintJsonLine({{"branch", info.name.empty() ? IdText(info.id) : info.name},
                     {"ns", info.ns},
                     {"id", static_cast<uint64_t>(info.id)},
                     {"length", length}});
    } else {
      std::printf("%s: %s\n", BranchLabel(info).c_str(), Plural(length, "token").c_str());
    }
    if (std::fflush(stdout) == 0) return Status::Ok();
    return Status(StatusCode::kIoError, "standard output cannot be written");
  }

  Store* const store_;
  const AppendArguments& arguments_;
  const bool json_;
  std::map<std::string, ModelId> models_;
};

Status AppendLines(Appender* appender, const AppendArguments& arguments) {
  std::string line;
  for (uint64_t number = 1; std::getline(std::cin, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const Result<Item> item = ParseLine(line, arguments);
    const Status status = item.ok() ? appender->Append(*item) : item.status();
    CAIRN_RETURN_IF_ERROR(status.WithContext("line " + std::to_string(number)));
  }
  return Status::Ok();
}

Result<Item> ItemOf(const AppendArguments& arguments) {
  Item item;
  item.branch = arguments.branch;
  item.ns = arguments.ns;
  item.model = arguments.model;
  item.expected_length = arguments.expected_length;
  if (!arguments.metadata.empty()) {
    CAIRN_ASSIGN_OR_RETURN(item.metadata, ParseJson(arguments.metadata, "--metadata"));
  }
  for (const std::string& text : arguments.tokens) {
    CAIRN_RETURN_IF_ERROR(ParseTokens(text, &item.tokens));
  }
  return item;
}

Result<int> RunAppend(const AppendArguments& arguments, bool json) {
  if (arguments.json_lines && (!arguments.tokens.empty() || !arguments.metadata.empty() ||
                               arguments.expected_length.has_value())) {
    return Bad("with --json-lines, tokens, --metadata and --expected-length belong into the lines");
  }
  if (!arguments.json_lines && arguments.branch.empty()) {
    return Bad(std::string("BRANCH is required (") + kQuoteIds + ")");
  }
  Result<Item> item = Item{};
  if (!arguments.json_lines) {
    // Read and checked before the store is opened: nobody waits for a slow pipe.
    item = ItemOf(arguments);
    if (!item.ok()) return item.status();
    if (arguments.tokens.empty()) {
      CAIRN_RETURN_IF_ERROR(ReadTokens(std::cin, &item->tokens));
    }
  }
  CAIRN_ASSIGN_OR_RETURN(Store store, OpenForWriting(arguments.store));
  Appender appender(&store, arguments, json);
  const Status status = arguments.json_lines ? AppendLines(&appender, arguments)
                                             : NameOption(appender.Append(*item), "expected_length",
                                                          "--expected-length");
  if (!status.ok()) return CloseAfter(&store, status);
  return CloseAfter(&store, kExitOk);
}

}  // namespace

void AddAppendCommand(CLI::App& app, Session& session) {
  const auto append = std::make_shared<AppendArguments>();
  CLI::App* command = AddCommand(
      app, session, "append", Access::kOwns,
      "Append tokens to a branch\n\n"
      "The ids stand behind BRANCH, or come from standard input between white space or commas. "
      "With\n"
      "--json-lines each line of standard input is one append, to any branch:\n"
      "\n"
      "  "
      "{\"branch\":\"x\",\"tokens\":[1,2],\"metadata\":{\"any\":\"JSON\"},\"expected_length\":0}\n"
      "\n"
      "where \"ns\", \"model\", \"metadata\" and \"expected_length\" may be left out. With "
      "\"ns\" both it\n"
      "and \"branch\" are plain names. Each is reported as\n"
      "soon as it is as durable as was asked for; the first that fails ends the command, and what\n"
      "was reported before it stays. A branch of a model with KV gets tokens, no KV.",
      "  cairn append notes chat --create 1 2 3\n"
      "  tokenize < prompt.txt | cairn append notes chat --expected-length 3\n"
      "  cairn append notes chat 4 5 --metadata '{\"turn\": 2}'\n"
      "  cairn append notes --create --json-lines --json < conversations.jsonl",
      append, RunAppend);
  AddStoreArgument(command, &append->store);
  command->add_option("BRANCH", append->branch, kBranchHelp);
  command->add_option("TOKEN", append->tokens, "Token ids");
  command->add_option("--ns", append->ns, kNsHelp);
  command->add_flag("--create", append->create, "Make a branch that does not exist");
  command
      ->add_option("--model", append->model,
                   "Model of branches that are made; registered, without KV, when unknown")
      ->capture_default_str();
  command->add_option("--metadata", append->metadata, "A JSON value, kept as MessagePack");
  AddNumberOption(command, "--expected-length", &append->expected_length,
                  "Append only if the branch is this long (exit code 6 if not)");
  command->add_flag("--json-lines", append->json_lines, "Read JSON lines from standard input");
  AddDurabilityOption(command, &append->durability);
}

}  // namespace cairn::cli
