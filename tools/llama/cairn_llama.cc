// SPDX-License-Identifier: Apache-2.0
//
// cairn-llama: runs the small model by hand, and shows other engines' tests what it computes.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "tools/llama/model_files.h"
#include "tools/llama/perplexity.h"
#include "tools/llama/sampler.h"
#include "tools/llama/transformer.h"

namespace cairn::llama {
namespace {

struct Arguments {
  std::string checkpoint = DefaultCheckpointPath();
  std::string tokenizer = DefaultTokenizerPath();
  std::string prompt;
  int tokens = 256;
  SamplerOptions sampler{.temperature = 0.8f, .top_p = 0.95f};
  uint64_t seed = 1;
  std::string file = HeldOutTextPath();
  int context = 0;           // 0: the model's
  std::vector<int32_t> ids;  // The ids that `logits` belongs to.
};

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

constexpr int kExitUsage = 2;

int Fail(const std::string& message) {
  std::fprintf(stderr, "cairn-llama: %s\n", message.c_str());
  return 1;
}

void Print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

int Generate(const Arguments& arguments, const Model& model) {
  const Config& config = model.checkpoint.config();
  std::vector<int32_t> tokens = model.tokenizer.Encode(arguments.prompt);
  const size_t prompt_tokens = tokens.size();
  const size_t positions = std::min(static_cast<size_t>(config.max_positions),
                                    prompt_tokens + static_cast<size_t>(arguments.tokens));
  if (prompt_tokens >= positions) {
    return Fail("the prompt takes " + std::to_string(prompt_tokens) + " of the model's " +
                std::to_string(config.max_positions) + " positions");
  }
  Transformer<float> transformer(model.checkpoint);
  KvCache cache(config, static_cast<int>(positions));
  Sampler sampler(arguments.sampler, {.seed = arguments.seed, .offset = 0});

  const auto start = std::chrono::steady_clock::now();
  std::span<const float> logits = transformer.Forward(tokens, 0, LogitsOf::kLastRow, &cache);
  const double prefill_seconds = SecondsSince(start);
  Print(arguments.prompt);
  while (true) {
    const int32_t token = sampler.Sample(logits);
    if (token == kBosToken || token == kEosToken) {
      break;  // the next text would begin here
    }
    Print(model.tokenizer.Decode(tokens.back(), token));
    tokens.push_back(token);
    if (tokens.size() == positions) {
      break;
    }
    logits = transformer.Forward({&token, 1}, static_cast<int>(tokens.size()) - 1,
                                 LogitsOf::kLastRow, &cache);
  }
  const double decode_seconds = SecondsSince(start) - prefill_seconds;
  const size_t generated = tokens.size() - prompt_tokens;
  Print("\n");
  std::fprintf(stderr,
               "prefill %zu tokens, %.0f/s; decode %zu tokens, %.0f/s; sampler offset %llu\n",
               prompt_tokens, static_cast<double>(prompt_tokens) / prefill_seconds, generated,
               static_cast<double>(generated) / decode_seconds,
               static_cast<unsigned long long>(sampler.state().offset));
  return 0;
}

// Cuts the text into windows of `context` positions, each starting with <s>. The first half of a
// window is scored only in the first one: everywhere else at least half a context stands before a
// scored token.
int Perplexity(const Arguments& arguments, const Model& model) {
  std::string error;
  const std::optional<std::string> text = ReadFile(arguments.file, &error);
  if (!text) {
    return Fail(error);
  }
  const Config& config = model.checkpoint.config();
  const size_t context = static_cast<size_t>(
      arguments.context > 0 ? arguments.context : std::max(config.max_positions, 2));
  const std::vector<int32_t> tokens = model.tokenizer.Encode(*text);
  Transformer<float> transformer(model.checkpoint);
  KvCache cache(config, static_cast<int>(context));
  TextLoss loss;
  const size_t step = context / 2;
  for (size_t begin = 0; begin + 1 < tokens.size(); begin += step) {
    const size_t end = std::min(begin + context, tokens.size());
    std::vector<int32_t> window(tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                                tokens.begin() + static_cast<std::ptrdiff_t>(end));
    window[0] = kBosToken;
    AddWindowLoss<float>(window, begin == 0 ? 1 : context - step, &transformer, &cache, &loss);
    if (end == tokens.size()) {
      break;
    }
  }
  if (loss.tokens == 0) {
    return Fail(arguments.file + ": no token to score");
  }
  std::printf(
      "%s: %lld tokens, context %zu, loss %.4f nats per token, perplexity %.3f, %.4f bits per "
      "byte\n",
      arguments.file.c_str(), static_cast<long long>(loss.tokens), context,
      loss.nats / static_cast<double>(loss.tokens), loss.perplexity(),
      loss.nats / std::log(2.0) / static_cast<double>(text->size()));
  return 0;
}

// A JSON array of ids.
int Encode(const Arguments& arguments, const Model& model) {
  std::string error;
  const std::optional<std::string> text = ReadFile(arguments.file, &error);
  if (!text) {
    return Fail(error);
  }
  const char* before = "[";
  for (const int32_t token : model.tokenizer.Encode(*text)) {
    std::printf("%s%d", before, token);
    before = ", ";
  }
  std::printf("]\n");
  return 0;
}

// A JSON array for each id, one a line in an array of them. Nine digits name every float exactly.
int Logits(const Arguments& arguments, const Model& model) {
  const Config& config = model.checkpoint.config();
  if (arguments.ids.size() > static_cast<size_t>(config.max_positions)) {
    return Fail("--ids has " + std::to_string(arguments.ids.size()) + " of the model's " +
                std::to_string(config.max_positions) + " positions");
  }
  Transformer<float> transformer(model.checkpoint);
  KvCache cache(config, static_cast<int>(arguments.ids.size()));
  const std::span<const float> logits =
      transformer.Forward(arguments.ids, 0, LogitsOf::kAllRows, &cache);
  const auto columns = static_cast<size_t>(config.vocab_size);
  for (size_t i = 0; i < logits.size(); ++i) {
    const char* before = i == 0 ? "[[" : i % columns == 0 ? "],\n[" : ", ";
    std::printf("%s%.9g", before, static_cast<double>(logits[i]));
  }
  std::printf("]]\n");
  return 0;
}

int Main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Runs a llama2.c checkpoint on the CPU.", "cairn-llama");
  app.require_subcommand(1);
  const auto add_model = [&](CLI::App* command) {
    command->add_option("--checkpoint", arguments.checkpoint, "llama2.c checkpoint, version 0")
        ->capture_default_str();
    command->add_option("--tokenizer", arguments.tokenizer, "llama2.c tokenizer")
        ->capture_default_str();
  };
  CLI::App* generate = app.add_subcommand("generate", "Continue a prompt");
  add_model(generate);
  generate->add_option("--prompt", arguments.prompt, "Text to continue");
  generate->add_option("--tokens", arguments.tokens, "Tokens to generate at most")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  generate
      ->add_option("--temperature", arguments.sampler.temperature,
                   "0 always takes the likeliest token")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  generate->add_option("--top-p", arguments.sampler.top_p, "Probability mass to sample from")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  generate
      ->add_option("--top-k", arguments.sampler.top_k, "Number of tokens to sample from; 0: all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  generate->add_option("--seed", arguments.seed, "Key of the sampler")->capture_default_str();
  CLI::App* perplexity = app.add_subcommand("perplexity", "Score a text");
  add_model(perplexity);
  perplexity->add_option("--file", arguments.file, "The text")->capture_default_str();
  perplexity->add_option("--context", arguments.context, "Positions in a window, else the model's")
      ->check(CLI::Range(2, 1 << 20));
  CLI::App* encode = app.add_subcommand("encode", "Print the token ids of a text as JSON");
  add_model(encode);
  encode->add_option("--file", arguments.file, "The text")->capture_default_str();
  CLI::App* logits = app.add_subcommand("logits", "Print the logits behind each token as JSON");
  add_model(logits);
  logits->add_option("--ids", arguments.ids, "Token ids, 1,2,3")->delimiter(',')->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;  // --help is a parse error of code 0
  }

  std::string error;
  const std::optional<Model> model = LoadModel(arguments.checkpoint, arguments.tokenizer, &error);
  if (!model) {
    return Fail(error);
  }
  return generate->parsed()     ? Generate(arguments, *model)
         : perplexity->parsed() ? Perplexity(arguments, *model)
         : encode->parsed()     ? Encode(arguments, *model)
                                : Logits(arguments, *model);
}

}  // namespace
}  // namespace cairn::llama

int main(int argc, char** argv) {
  try {
    return cairn::llama::Main(argc, argv);
  } catch (const std::exception& exception) {  // memory, above all
    return cairn::llama::Fail(exception.what());
  }
}
